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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// recent is the maximum age of a sign-in for opening the page. The sign-in page requests five minutes; the additional
	// minute tolerates the clocks of identity providers.
	recent = 6 * time.Minute

	// formLifetime is how long a form of the page can be sent.
	formLifetime = 10 * time.Minute

	// purpose is the purpose of sealing the page's forms.
	purpose = "admin"
)

type admin struct {
	core   *authorize.Core
	scope  string // required by a scope limit for opening the page
	store  Store
	sealer *browser.Sealer
	turns  *fairqueue.Queue // per administrator, because listing all entries is expensive
}

func (a *admin) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.core.Sessions.Current(r)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case signedIn == nil:
		signIn(w)
	case !a.core.Accounts.ScopeLimits.Gives(signedIn.User.Attributes(), a.scope):
		a.refuse(w, r, signedIn)
	case !oauth2.MeetsACR(signedIn.ACR(), oauth2.ACRMultiFactor), r.Method == http.MethodGet && signedIn.Age > recent:
		a.prove(w, r, signedIn)
	default:
		a.answer(w, r, signedIn)
	}
}

// answer responds to a person who may open the page.
func (a *admin) answer(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	leave, err := a.turns.Enter(r.Context(), signedIn.User.ID)
	if err != nil {
		a.showError(w, r, err)
		return
	}
	defer leave()
	audit.RecordAuthenticated(r.Context())
	if r.Method == http.MethodPost {
		a.submit(w, r, signedIn)
		return
	}
	a.show(w, r, signedIn)
}

var errNotAdmin = &oauth2.Error{Code: "access_denied", Description: "the person may not open the page of administrators", Status: http.StatusForbidden}

func (a *admin) refuse(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	a.core.Responder.Trail.Record(r.Context(), audit.Event{Kind: audit.User, Actor: signedIn.User.ID, Err: errNotAdmin})
	a.core.Pages.ShowMessage(w, r, http.StatusForbidden, page.Message{
		Title: page.T("You don’t have access to this page"), Text: page.T("Only administrators can open this page. If you need access, contact the administrator of this site."),
	})
}

// prove redirects a person to the sign-in page for a second factor, or to the setup of a local factor if they have none yet.
func (a *admin) prove(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	held, err := a.core.Factors.Load(r.Context(), signedIn.User)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case a.core.Factors.Local(signedIn.User) && !held.Any():
		a.core.Pages.ShowMessage(w, r, http.StatusForbidden, page.Message{
			Title: page.T("You need a second factor"), Text: page.T("Set one up in your account, then open this page again."),
			Next: &page.Link{Address: endpoint.Account, Text: page.T("Your account")},
		})
	default:
		signIn(w)
	}
}

// signIn redirects the browser to the sign-in page, which redirects it back.
func signIn(w http.ResponseWriter) {
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Login+"?"+url.Values{"to": {purpose}, "max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}}.Encode())
}

var errPageExpired = oauth2.NewRestartError("This page has expired or was opened in another browser. Open the page again.")

// seal seals a session for the forms of a page.
func (a *admin) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) (string, error) {
	return a.sealer.Seal(w, r, purpose, signedIn.SID)
}

// unseal checks that a form was recently shown in this session and browser.
func (a *admin) unseal(r *http.Request, signedIn *session.SignedIn, sealed string) error {
	return a.sealer.Check(r, purpose, sealed, signedIn.SID, formLifetime, errPageExpired)
}

// view shows a page with forms that are sent to the page itself and may redirect to the administrator's identity provider for signing in again.
func (a *admin) view(w http.ResponseWriter, r *http.Request, v page.View) {
	v.Policy.FormAction = page.FormAction(a.core.Accounts.Issuers()...)
	a.core.Pages.Show(w, r, v)
}

// showError shows an error. Errors that the administrator can correct are in English, as in the configuration.
func (a *admin) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	message := page.Message{Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute.")}
	back := &page.Link{Address: path, Text: page.T("Back to administration")}
	switch {
	case e.IsUserCorrectable:
		message = page.Message{Title: page.T("Start again"), Text: page.Problem(e), Next: back}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("No changes were made"), Text: page.T("Go back and correct this problem:"), Detail: e.Description, Next: back}
	default:
		a.core.Responder.Logger.ErrorContext(r.Context(), "page of administrators not shown", "error", err)
	}
	a.core.Pages.ShowMessage(w, r, e.HTTPStatus(), message)
}

// maxShown is the maximum length of a list.
const maxShown = 100

// overviewPage is the data of templates/admin.html, the administration page.
type overviewPage struct {
	Person page.Person // the administrator
	Done   *page.Text  // the latest action; nil if none
	Search string      // text to search for in the names; "" for all
	Apps   entryList   // those that await approval first
	People entryList   // users in the store
}

// entryList is a list of apps or users.
type entryList struct {
	Items []entryItem // the first entries
	More  bool        // whether there are more entries
}

// entryItem is an app or a user in a list.
type entryItem struct {
	Name     string     // client_id, or user name
	Title    string     // display name
	Note     *page.Text // location of the entry
	Since    string     // date when the entry was added, or ""
	Problem  string     // why the entry is not active, in English
	Disabled bool       // reports a user who must not sign in
	Address  string     // of the entry's page; "" if the entry has no page
}

// entryPage is the data of templates/adminentry.html: an app or a user, or the form for a new one.
type entryPage struct {
	Request    string // sealed session
	Seen       string // version of the entry, to detect changes by others
	Kind       string // value in the form
	App        bool   // an app, not a user
	New        bool   // a new entry
	Registered bool   // a self-registered app, which cannot be edited
	Waits      bool   // awaits approval
	Own        bool   // the administrator's own entry, which they cannot change
	Renews     bool   // the secret or password can be replaced
	Problem    string // why the entry is not active, in English

	Name  string // client_id, or user name
	Title string // display name

	RedirectURIs string // of an app, one per line
	Scopes       string // that an app may be granted, one per line
	LaunchURI    string // URL for launches from an EHR

	Groups   string // of a user, one per line
	FHIRUser string // the user's FHIR resource
	Email    string // e-mail address of a user
	Disabled bool   // a user must not sign in
}

// secretPage is the data of templates/adminsecret.html, which is shown once.
type secretPage struct {
	Name   string // name of the app or user
	App    bool   // an app, not a user
	Secret string // the secret, or the password
}

// show shows the lists, an app or user, or the form for a new entry.
func (a *admin) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.QueryParameters(r.URL.RawQuery)
	if err != nil {
		a.showError(w, r, err)
		return
	}
	switch kind := p.Get("kind"); {
	case kind != Clients && kind != Users:
		a.showLists(w, r, signedIn, p)
	case p.Get("name") == "":
		a.showEntry(w, r, signedIn, kind, nil)
	default:
		entry, err := a.changeable(r.Context(), kind, p.Get("name"))
		if err != nil {
			a.showError(w, r, err)
			return
		}
		a.showEntry(w, r, signedIn, kind, entry)
	}
}

func (a *admin) showLists(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	apps, err := a.list(r.Context(), Clients, p.Get("search"))
	if err != nil {
		a.showError(w, r, err)
		return
	}
	people, err := a.list(r.Context(), Users, p.Get("search"))
	if err != nil {
		a.showError(w, r, err)
		return
	}
	a.view(w, r, page.View{Template: "admin", Data: overviewPage{
		Person: page.Person(signedIn.User.Label()), Done: done[p.Get("done")], Search: p.Get("search"), Apps: apps, People: people,
	}})
}

// list returns the entries of a kind with names that contain the search text; entries that await approval come first. Users of
// the configuration are left out.
func (a *admin) list(ctx context.Context, kind, search string) (list entryList, err error) {
	entries, err := a.store.List(ctx, kind)
	search = strings.ToLower(search)
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		return kind == Users && e.From != Stored || !strings.Contains(strings.ToLower(e.Name+"\n"+e.Title), search)
	})
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)))
	})
	if list.More = len(entries) > maxShown; list.More {
		entries = entries[:maxShown]
	}
	for _, e := range entries {
		list.Items = append(list.Items, item(kind, e))
	}
	return list, err
}

func rank(e Entry) int {
	if e.PendingApproval {
		return 0
	}
	return 1
}

func item(kind string, e Entry) entryItem {
	shown := entryItem{Name: e.Name, Title: cmp.Or(e.Title, e.Name), Note: page.T("in the configuration"), Problem: e.Problem, Disabled: e.Disabled}
	switch {
	case e.PendingApproval:
		shown.Note = page.T("awaiting approval")
	case e.From == Registered:
		shown.Note = page.T("self-registered")
	case e.From == Stored:
		shown.Note = page.T("in the store")
	}
	if e.From == Stored || e.From == Registered {
		shown.Address = path + "?" + url.Values{"kind": {kind}, "name": {e.Name}}.Encode()
	}
	if !e.Since.IsZero() {
		shown.Since = e.Since.UTC().Format(time.DateOnly)
	}
	return shown
}

var errGone = oauth2.NewRestartError("This item was already removed.")

// changeable returns an entry that is not in the configuration.
func (a *admin) changeable(ctx context.Context, kind, name string) (*Entry, error) {
	entries, err := a.store.List(ctx, kind)
	for _, e := range entries {
		if e.Name == name && (e.From == Stored || e.From == Registered) {
			return &e, nil
		}
	}
	return nil, cmp.Or(err, error(errGone))
}

// showEntry shows the form of an entry, or of a new entry if e is nil.
func (a *admin) showEntry(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, kind string, e *Entry) {
	shown := entryPage{Kind: kind, App: kind == Clients, New: e == nil}
	var err error
	if shown.Request, err = a.seal(w, r, signedIn); err != nil {
		a.showError(w, r, err)
		return
	}
	if e != nil {
		shown.Seen, shown.Waits, shown.Registered = e.digest(), e.PendingApproval, e.From == Registered
		shown.Renews = kind == Users || e.Secret
		shown.Own = isOwn(signedIn, kind, e.Name)
		shown.Name, shown.Title, shown.Problem = e.Name, e.Title, e.Problem
		shown.RedirectURIs, shown.Scopes, shown.LaunchURI = strings.Join(e.RedirectURIs, "\n"), strings.Join(e.Scopes, "\n"), e.LaunchURI
		shown.Groups, shown.FHIRUser, shown.Email, shown.Disabled = strings.Join(e.Groups, "\n"), e.FHIRUser, e.Email, e.Disabled
	}
	a.view(w, r, page.View{Template: "adminentry", Data: shown})
}

var (
	errNoAction = oauth2.NewRestartError("Use the buttons on the page.")
	errChanged  = oauth2.NewRestartError("Someone else changed this entry. Open the entry again.")
	errOwn      = oauth2.NewRestartError("You can’t change your own entry. Ask another administrator.")
)

// done contains the messages in the lists after an action.
var done = map[string]*page.Text{
	"add":     page.T("Added."),
	"edit":    page.T("Changes saved."),
	"remove":  page.T("Removed."),
	"approve": page.T("App approved."),
	"secret":  nil, // the secret is shown
}

// submit handles the page's forms.
func (a *admin) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request")
	}
	if err == nil {
		err = a.unseal(r, signedIn, p.Get("request"))
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	c := changeOf(p)
	secret := ""
	if err = a.check(r.Context(), signedIn, c, p.Get("seen")); err == nil {
		secret, err = a.store.Change(r.Context(), c)
	}
	a.record(r.Context(), signedIn, c, err)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case secret != "":
		a.view(w, r, page.View{Template: "adminsecret", Data: secretPage{Name: c.Name, App: c.Kind == Clients, Secret: secret}})
	default:
		endpoint.Redirect(w, http.StatusSeeOther, path+"?"+url.Values{"done": {c.Action}}.Encode())
	}
}

func changeOf(p oauth2.Parameters) Change {
	return Change{
		Kind: p.Get("kind"), Action: p.Get("action"), Secret: p.Get("secret") != "",
		Fields: Fields{
			Name: p.Get("name"), Title: strings.TrimSpace(p.Get("title")),
			RedirectURIs: strings.Fields(p.Get("redirect_uris")), Scopes: strings.Fields(p.Get("scopes")), LaunchURI: strings.TrimSpace(p.Get("launch_uri")),
			Groups: lines(p.Get("groups")), FHIRUser: strings.TrimSpace(p.Get("fhir_user")), Email: strings.TrimSpace(p.Get("email")), Disabled: p.Get("disabled") != "",
		},
	}
}

// lines returns the non-empty lines of a text. A line may contain spaces, as in the name of a group.
func lines(text string) (list []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// check rejects a change to an entry that has changed since it was shown, and of the administrator's own entry.
func (a *admin) check(ctx context.Context, signedIn *session.SignedIn, c Change, seen string) error {
	_, known := done[c.Action]
	switch {
	case !known, c.Name == "", c.Kind != Clients && c.Kind != Users, c.Action == "approve" && c.Kind != Clients:
		return errNoAction
	case isOwn(signedIn, c.Kind, c.Name):
		return errOwn
	case c.Action == "add":
		return nil
	}
	entry, err := a.changeable(ctx, c.Kind, c.Name)
	switch {
	case err != nil:
		return err
	case entry.digest() != seen:
		return errChanged
	case c.Action == "edit" && entry.From != Stored:
		return errNoAction
	}
	return nil
}

// isOwn reports whether an entry is the administrator's own: administrators cannot give themselves groups or other people's records.
func isOwn(signedIn *session.SignedIn, kind, name string) bool {
	return kind == Users && name == signedIn.User.ID
}

// record records a change or its refusal in the audit log.
func (a *admin) record(ctx context.Context, signedIn *session.SignedIn, c Change, err error) {
	reasons := map[string]string{"add": "added", "edit": "changed", "remove": "removed", "approve": "approved", "secret": "new secret"}
	e := audit.Event{Kind: audit.User, Actor: signedIn.User.ID, User: c.Name, Reason: reasons[c.Action] + " by an administrator", Err: err}
	if c.Kind == Clients {
		e.Kind, e.User, e.ClientID = audit.Registration, "", c.Name
	}
	a.core.Responder.Trail.Record(ctx, e)
}
