package adminpage

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// maxSignInAge is the maximum age of a sign-in for opening the page. The sign-in page requests five minutes; the additional
	// minute allows for clock skew at identity providers.
	maxSignInAge = 6 * time.Minute

	// formLifetime is how long a form of the page can be submitted.
	formLifetime = 10 * time.Minute

	// sealPurpose is the purpose for which the page's forms are sealed.
	sealPurpose = "admin"
)

type admin struct {
	core         *authorize.Core
	scope        string // scope required to open the page
	store        Store
	sealer       *browser.Sealer
	header       *signin.SessionHeader
	requestQueue *fairqueue.Queue // one queue per administrator, because listing all entries is expensive
}

func (a *admin) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.core.Sessions.CurrentPerson(r)
	switch {
	case err != nil:
		a.showError(w, r, signedIn, err)
	case signedIn == nil:
		redirectToSignIn(w)
	case !a.core.Accounts.ScopeLimits.GrantsCustomScope(signedIn.User.Attributes(), a.scope):
		a.denyAccess(w, r, signedIn)
	case !oauth2.MeetsACR(signedIn.ACR(), oauth2.ACRMultiFactor), r.Method == http.MethodGet && signedIn.SignInAge > maxSignInAge:
		a.requireStepUp(w, r, signedIn)
	default:
		a.serveAdmin(w, r, signedIn)
	}
}

// serveAdmin responds to a request from an administrator. It waits for the administrator's other requests.
func (a *admin) serveAdmin(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	release, err := a.requestQueue.Acquire(r.Context(), signedIn.User.ID)
	if err != nil {
		a.showError(w, r, signedIn, err)
		return
	}
	defer release()
	audit.RecordAuthenticated(r.Context())
	if r.Method == http.MethodPost {
		a.submit(w, r, signedIn)
		return
	}
	a.show(w, r, signedIn)
}

var errNotAdmin = &oauth2.Error{Code: "access_denied", Description: "the user is not an administrator", Status: http.StatusForbidden}

func (a *admin) denyAccess(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	a.core.Responder.Trail.Record(r.Context(), audit.Event{Kind: audit.KindUser, Actor: signedIn.User.ID, Err: errNotAdmin})
	a.showMessage(w, r, signedIn, http.StatusForbidden, page.Message{
		Title: page.T("You don’t have access to this page"), Text: page.T("Only administrators can open this page. If you need access, contact the administrator of this site."),
		Next: &page.Link{Address: endpoint.Account, Text: page.T("Open your account")},
	})
}

// requireStepUp redirects a person to the sign-in page for a second factor, or to the setup of a local factor if they have none
// yet.
func (a *admin) requireStepUp(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	enrolled, err := a.core.Factors.Load(r.Context(), signedIn.User)
	switch {
	case err != nil:
		a.showError(w, r, signedIn, err)
	case a.core.Factors.ManagesFactorsOf(signedIn.User) && !enrolled.HasAny():
		a.showMessage(w, r, signedIn, http.StatusForbidden, signin.SecondFactorMessage())
	default:
		redirectToSignIn(w)
	}
}

// redirectToSignIn redirects the browser to the sign-in page, which returns to this page after the sign-in.
func redirectToSignIn(w http.ResponseWriter) {
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Login+"?"+url.Values{"to": {sealPurpose}, "max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}}.Encode())
}

var errPageExpired = oauth2.NewRestartError("This page has expired or was opened in another browser. Open the page again.")

// seal returns the sealed session ID for the forms of a page.
func (a *admin) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) (string, error) {
	return a.sealer.Seal(w, r, sealPurpose, signedIn.SID)
}

// unseal returns an error unless the form was recently shown in this session and browser.
func (a *admin) unseal(r *http.Request, signedIn *session.SignedInPerson, sealed string) error {
	return a.sealer.Check(r, sealPurpose, sealed, signedIn.SID, formLifetime, errPageExpired)
}

// showForm shows a page with forms. The forms are submitted to the page itself, which may redirect to the administrator's
// identity provider for another sign-in.
func (a *admin) showForm(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, v page.View) {
	v.SignedIn = a.header.For(w, r, signedIn, signin.PageQuery(url.Values{"to": {sealPurpose}}))
	v.Policy.FormAction = page.FormActionSources(a.core.Accounts.Issuers()...)
	a.core.Pages.Show(w, r, v)
}

// showMessage shows a message to the signed-in person.
func (a *admin) showMessage(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, status int, message page.Message) {
	a.showForm(w, r, signedIn, page.View{Template: "message", Status: status, Data: message})
}

// showError shows an error page. Errors that the administrator can correct are in English, as in the configuration.
func (a *admin) showError(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, err error) {
	e := oauth2.AsError(err)
	message := page.Message{
		Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute."),
		Next: &page.Link{Address: path, Text: page.T("Try again")},
	}
	backLink := &page.Link{Address: path, Text: page.T("Back to administration")}
	switch {
	case e.IsUserCorrectable:
		message = page.Message{Title: page.T("Start again"), Text: page.ErrorText(e), Next: backLink}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("No changes were made"), Text: page.T("Go back and correct this problem:"), Detail: e.Description, Next: backLink}
	default:
		a.core.Responder.Logger.ErrorContext(r.Context(), "administration page failed", "error", err)
	}
	a.showMessage(w, r, signedIn, e.HTTPStatus(), message)
}

// maxListItems is the maximum number of entries in a list.
const maxListItems = 100

// overviewPage is the data of templates/admin.html, the administration page.
type overviewPage struct {
	Confirmation *page.Text // confirmation of the latest action; nil if there was none
	Search       string     // text that names must contain; "" for all
	Apps         entryList  // apps, those that await approval first
	People       entryList  // users in the store
}

// entryList is a list of apps or users.
type entryList struct {
	Items   []entryItem // the first entries
	HasMore bool        // whether there are more entries
}

// entryItem is an app or a user in a list.
type entryItem struct {
	Name     string     // client_id, or user name
	Title    string     // display name
	Origin   *page.Text // location of the entry
	Since    string     // date when the entry was added, or ""
	Problem  string     // why the entry is not active, in English
	Disabled bool       // whether sign-in is disabled for the user
	Address  string     // URL of the entry's page; "" if the entry has no page
}

// entryPage is the data of templates/adminentry.html: an app or a user, or the form for a new one.
type entryPage struct {
	Request         string // sealed session
	Version         string // version of the entry, to detect concurrent changes
	Kind            string // value of the form field "kind"
	IsApp           bool   // whether the entry is an app, not a user
	IsNew           bool   // whether the form is for a new entry
	Registered      bool   // whether this is a self-registered app, which cannot be edited
	PendingApproval bool   // whether the app awaits approval
	IsSelf          bool   // whether this is the administrator's own entry, which they cannot change
	CanRenewSecret  bool   // whether the secret or password can be replaced
	Problem         string // why the entry is not active, in English

	Name  string // client_id, or user name
	Title string // display name

	RedirectURIs string // redirect URIs of an app, one per line
	Scopes       string // scopes that an app may be granted, one per line
	LaunchURI    string // URL for launches from an EHR

	Groups   string // groups of a user, one per line
	FHIRUser string // the user's FHIR resource
	Email    string // e-mail address of a user
	Disabled bool   // whether sign-in is disabled for the user

	WantsSecret  bool   // whether the rejected form requested a secret
	Rejection    string // why the submitted fields were rejected, in English; "" if they were not
	InvalidField string // name of the rejected form field; "" if unknown
}

// Heading returns the display name or, if there is none, the client_id or user name.
func (e entryPage) Heading() string { return cmp.Or(e.Title, e.Name) }

// secretPage is the data of templates/adminsecret.html, which shows a new secret or password once.
type secretPage struct {
	Name   string // name of the app or user
	IsApp  bool   // whether the entry is an app, not a user
	Secret string // new secret or password
}

// show shows the lists, one app or user, or the form for a new entry.
func (a *admin) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	p, err := oauth2.ReadCheckedQuery(r.URL.RawQuery)
	if err != nil {
		a.showError(w, r, signedIn, err)
		return
	}
	switch kind := p.Get("kind"); {
	case kind != Clients && kind != Users:
		a.showLists(w, r, signedIn, p)
	case p.Get("name") == "":
		a.showEntry(w, r, signedIn, kind, nil)
	default:
		entry, err := a.editableEntry(r.Context(), kind, p.Get("name"))
		if err != nil {
			a.showError(w, r, signedIn, err)
			return
		}
		a.showEntry(w, r, signedIn, kind, entry)
	}
}

func (a *admin) showLists(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	apps, err := a.list(r.Context(), Clients, p.Get("search"))
	if err != nil {
		a.showError(w, r, signedIn, err)
		return
	}
	people, err := a.list(r.Context(), Users, p.Get("search"))
	if err != nil {
		a.showError(w, r, signedIn, err)
		return
	}
	a.showForm(w, r, signedIn, page.View{Template: "admin", Data: overviewPage{
		Confirmation: confirmations[p.Get("done")], Search: p.Get("search"), Apps: apps, People: people,
	}})
}

// list returns the entries of the given kind with names that contain the search text. Entries that await approval come first.
// Users of the configuration are omitted.
func (a *admin) list(ctx context.Context, kind, search string) (list entryList, err error) {
	entries, err := a.store.List(ctx, kind)
	search = strings.ToLower(search)
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		return kind == Users && e.From != Stored || !strings.Contains(strings.ToLower(e.Name+"\n"+e.Title), search)
	})
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(sortRank(a), sortRank(b)), cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)))
	})
	if list.HasMore = len(entries) > maxListItems; list.HasMore {
		entries = entries[:maxListItems]
	}
	for _, e := range entries {
		list.Items = append(list.Items, newEntryItem(kind, e))
	}
	return list, err
}

func sortRank(e Entry) int {
	if e.PendingApproval {
		return 0
	}
	return 1
}

func newEntryItem(kind string, e Entry) entryItem {
	item := entryItem{Name: e.Name, Title: cmp.Or(e.Title, e.Name), Origin: page.T("managed in the configuration file"), Problem: e.Problem, Disabled: e.Disabled}
	switch {
	case e.PendingApproval:
		item.Origin = page.T("awaiting approval")
	case e.From == Registered:
		item.Origin = page.T("self-registered")
	case e.From == Stored:
		item.Origin = page.T("managed here")
	}
	if e.From == Stored || e.From == Registered {
		item.Address = path + "?" + url.Values{"kind": {kind}, "name": {e.Name}}.Encode()
	}
	if !e.Since.IsZero() {
		item.Since = e.Since.UTC().Format(time.DateOnly)
	}
	return item
}

var errEntryRemoved = oauth2.NewRestartError("This item was already removed.")

// editableEntry returns an entry; an error if it doesn't exist or is part of the configuration.
func (a *admin) editableEntry(ctx context.Context, kind, name string) (*Entry, error) {
	entries, err := a.store.List(ctx, kind)
	for _, e := range entries {
		if e.Name == name && (e.From == Stored || e.From == Registered) {
			return &e, nil
		}
	}
	return nil, cmp.Or(err, error(errEntryRemoved))
}

// showEntry shows the form of an entry, or of a new entry if e is nil.
func (a *admin) showEntry(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, kind string, e *Entry) {
	a.showEntryForm(w, r, signedIn, http.StatusOK, newEntryPage(signedIn, kind, e))
}

// showRejected shows the form again with the submitted fields and the reason why they were rejected.
func (a *admin) showRejected(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, c Change, version string, rejection *oauth2.Error) {
	e := &Entry{From: Stored}
	if c.Action == "edit" {
		var err error
		if e, err = a.editableEntry(r.Context(), c.Kind, c.Name); err != nil {
			a.showError(w, r, signedIn, err)
			return
		}
	}
	e.Fields = c.Fields
	form := newEntryPage(signedIn, c.Kind, e)
	form.IsNew, form.Version, form.WantsSecret = c.Action == "add", version, c.WantsSecret
	form.Rejection, form.InvalidField = rejection.Description, invalidField(rejection.Description)
	a.showEntryForm(w, r, signedIn, rejection.HTTPStatus(), form)
}

// invalidField returns the form field that an error message is about. Error messages name the options of the Caddyfile.
func invalidField(message string) string {
	for _, f := range []struct{ word, field string }{
		{"redirect_uri", "redirect_uris"}, {"launch_uri", "launch_uri"}, {"scope", "scopes"}, {"fhir_user", "fhir_user"},
		{"email", "email"}, {"e-mail", "email"}, {"group", "groups"}, {"client_id", "name"}, {"user name", "name"}, {"already", "name"}, {"twice", "name"},
	} {
		if strings.Contains(strings.ToLower(message), f.word) {
			return f.field
		}
	}
	return ""
}

func (a *admin) showEntryForm(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, status int, form entryPage) {
	var err error
	if form.Request, err = a.seal(w, r, signedIn); err != nil {
		a.showError(w, r, signedIn, err)
		return
	}
	a.showForm(w, r, signedIn, page.View{Template: "adminentry", Status: status, Data: form})
}

func newEntryPage(signedIn *session.SignedInPerson, kind string, e *Entry) entryPage {
	form := entryPage{Kind: kind, IsApp: kind == Clients, IsNew: e == nil}
	if e != nil {
		form.Version, form.PendingApproval, form.Registered = e.digest(), e.PendingApproval, e.From == Registered
		form.CanRenewSecret = kind == Users || e.Secret
		form.IsSelf = isSelf(signedIn, kind, e.Name)
		form.Name, form.Title, form.Problem = e.Name, e.Title, e.Problem
		form.RedirectURIs, form.Scopes, form.LaunchURI = strings.Join(e.RedirectURIs, "\n"), strings.Join(e.Scopes, "\n"), e.LaunchURI
		form.Groups, form.FHIRUser, form.Email, form.Disabled = strings.Join(e.Groups, "\n"), e.FHIRUser, e.Email, e.Disabled
	}
	return form
}

var (
	errUnknownAction = oauth2.NewRestartError("The form was sent without a known action. Use one of the buttons on the page.")
	errEditConflict  = oauth2.NewRestartError("Someone else changed this entry. Open the entry again.")
	errSelfEdit      = oauth2.NewRestartError("You can’t change your own entry. Ask another administrator.")
)

// confirmations contains the message for each action, shown above the lists.
var confirmations = map[string]*page.Text{
	"add":     page.T("Added."),
	"edit":    page.T("Changes saved."),
	"remove":  page.T("Removed."),
	"approve": page.T("App approved."),
	"secret":  nil, // a page with the secret is shown instead
}

// submit handles the submitted forms.
func (a *admin) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request")
	}
	if err == nil {
		err = a.unseal(r, signedIn, p.Get("request"))
	}
	if err != nil {
		a.showError(w, r, signedIn, err)
		return
	}
	c := parseChange(p)
	secret := ""
	if err = a.checkChange(r.Context(), signedIn, c, p.Get("seen")); err == nil {
		secret, err = a.store.Change(r.Context(), c)
	}
	a.recordChange(r.Context(), signedIn, c, err)
	rejection := oauth2.AsError(err)
	switch {
	case err != nil && (c.Action == "add" || c.Action == "edit") && rejection.Code == "invalid_request" && !rejection.IsUserCorrectable:
		a.showRejected(w, r, signedIn, c, p.Get("seen"), rejection)
	case err != nil:
		a.showError(w, r, signedIn, err)
	case secret != "":
		a.showForm(w, r, signedIn, page.View{Template: "adminsecret", Data: secretPage{Name: c.Name, IsApp: c.Kind == Clients, Secret: secret}})
	default:
		endpoint.Redirect(w, http.StatusSeeOther, path+"?"+url.Values{"done": {c.Action}}.Encode())
	}
}

func parseChange(p oauth2.Parameters) Change {
	return Change{
		Kind: p.Get("kind"), Action: p.Get("action"), WantsSecret: p.Get("secret") != "",
		Fields: Fields{
			Name: p.Get("name"), Title: strings.TrimSpace(p.Get("title")),
			RedirectURIs: strings.Fields(p.Get("redirect_uris")), Scopes: strings.Fields(p.Get("scopes")), LaunchURI: strings.TrimSpace(p.Get("launch_uri")),
			Groups: splitLines(p.Get("groups")), FHIRUser: strings.TrimSpace(p.Get("fhir_user")), Email: strings.TrimSpace(p.Get("email")), Disabled: p.Get("disabled") != "",
		},
	}
}

// splitLines returns the non-empty lines of a text. A line may contain spaces, as in the name of a group.
func splitLines(text string) (list []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// checkChange returns an error for unknown actions, concurrently changed entries, and the administrator's own entry.
func (a *admin) checkChange(ctx context.Context, signedIn *session.SignedInPerson, c Change, version string) error {
	_, supported := confirmations[c.Action]
	switch {
	case !supported, c.Name == "", c.Kind != Clients && c.Kind != Users, c.Action == "approve" && c.Kind != Clients:
		return errUnknownAction
	case isSelf(signedIn, c.Kind, c.Name):
		return errSelfEdit
	case c.Action == "add":
		return nil
	}
	entry, err := a.editableEntry(ctx, c.Kind, c.Name)
	switch {
	case err != nil:
		return err
	case entry.digest() != version:
		return errEditConflict
	case c.Action == "edit" && entry.From != Stored:
		return errUnknownAction
	}
	return nil
}

// isSelf reports whether an entry is the administrator's own. Administrators may not assign themselves groups or other people's
// records.
func isSelf(signedIn *session.SignedInPerson, kind, name string) bool {
	return kind == Users && name == signedIn.User.ID
}

// recordChange records a change, or the reason for its rejection, in the audit log.
func (a *admin) recordChange(ctx context.Context, signedIn *session.SignedInPerson, c Change, err error) {
	reasons := map[string]string{"add": "added", "edit": "changed", "remove": "removed", "approve": "approved", "secret": "new secret"}
	e := audit.Event{Kind: audit.KindUser, Actor: signedIn.User.ID, User: c.Name, Reason: reasons[c.Action] + " by an administrator", Err: err}
	if c.Kind == Clients {
		e.Kind, e.User, e.ClientID = audit.KindRegistration, "", c.Name
	}
	a.core.Responder.Trail.Record(ctx, e)
}
