package account

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Config configures the account page.
type Config struct {
	*endpoint.Responder
	Pages    *page.Site            // HTML pages
	Keys     keyring.BrowserSealer // sealing keys for forms
	Accounts *people.Accounts      // users
	Factors  *factor.Factors       // second factors
	Sessions *session.Sessions     // browser sessions
	Patients *launch.Patients      // patients with records that apps can access
	Apps     *token.Apps           // apps with access
	Revoker  *token.Revoker        // revocation of access
	Limiter  *lockout.Limiter      // throttling of wrong codes and passwords
	Describe Describer             // description of scopes

	// ChangePassword stores a new password of a user, or returns [people.ErrWrongPassword] if the hash has changed since.
	// Default: users cannot change it.
	ChangePassword func(ctx context.Context, user *people.User, password string) error
}

// New returns the handler of the account page.
func New(c Config) http.Handler {
	sealer := &browser.Sealer{Keys: c.Keys}
	renderer := &renderer{
		site: c.Pages, trail: c.Trail, sealer: sealer, issuers: c.Accounts.Issuers(),
		header: &signin.SessionHeader{Sealer: sealer, Sessions: c.Sessions},
	}
	sessions := &sessions{listing: session.Listing{Sessions: c.Sessions}, providers: c.Accounts.Providers, endQueue: fairqueue.New(1)}
	factors := &factors{renderer: renderer, store: c.Factors, sessions: sessions}
	a := &account{
		renderer: renderer, sessions: sessions, factors: factors,
		apps:          &apps{tokenApps: c.Apps, patients: c.Patients, logger: c.Logger, revoker: c.Revoker, describe: c.Describe},
		authenticator: &authenticatorApp{renderer: renderer, factors: factors, limiter: c.Limiter, issuer: c.Issuer},
		passkeys:      &passkeys{renderer, factors},
		passwords:     &passwords{renderer: renderer, directory: c.Accounts.Directory, limiter: c.Limiter, sessions: sessions, store: c.ChangePassword},
	}
	return c.Handler(a.serve, http.MethodGet, http.MethodPost)
}

func (a *account) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.sessions.listing.Sessions.CurrentPerson(r)
	switch {
	case err != nil:
		a.renderer.showError(w, r, err)
	case signedIn == nil, signedIn.ShouldRenew:
		redirectToSignIn(w, r, nil)
	case r.Method == http.MethodPost:
		a.submit(w, r, signedIn)
	default:
		a.show(w, r, signedIn)
	}
}

// show shows the account page or a part of it. The session must first present the second factor if the user has one.
func (a *account) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	needsProof, err := a.factors.store.RequiresSecondFactor(r.Context(), signedIn.User, sessionContext(signedIn))
	switch {
	case err != nil:
		a.renderer.showError(w, r, err)
	case needsProof:
		redirectToSignIn(w, r, nil)
	default:
		a.showPart(w, r, signedIn)
	}
}

func (a *account) showPart(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	switch r.URL.Query().Get("part") {
	case "app":
		if a.factors.mayChange(w, r, signedIn) {
			a.authenticator.show(w, r, signedIn)
		}
	case "passkey":
		if a.factors.mayChange(w, r, signedIn) {
			a.passkeys.show(w, r, signedIn)
		}
	case "password":
		a.passwords.show(w, r, signedIn)
	default:
		a.showOverview(w, r, signedIn)
	}
}

// button is a button of the account page. Unless allowsOldSignIn is set, the session must satisfy [factors.mayChange].
type button struct {
	handle          func(http.ResponseWriter, *http.Request, *session.SignedInPerson, oauth2.Parameters)
	allowsOldSignIn bool // no recent sign-in required, or proved by the sealed form input
}

// action performs the action of a button on the item in the form parameter "target".
type action func(ctx context.Context, signedIn *session.SignedInPerson, p oauth2.Parameters) error

func (a *account) buttons() map[string]button {
	return map[string]button{
		"end_app":        {a.perform(a.apps.revoke), true},
		"end_apps":       {a.perform(a.apps.revokeAll), true},
		"end_session":    {a.perform(a.sessions.end), true},
		"end_sessions":   {a.perform(a.sessions.endOthers), true},
		"remove_app":     {handle: a.perform(a.authenticator.remove)},
		"remove_passkey": {handle: a.perform(a.passkeys.remove)},
		"rename_passkey": {handle: a.perform(a.passkeys.rename)},
		"renew_recovery": {handle: a.factors.renewRecovery},
		"enrol_app":      {a.authenticator.enroll, true},
		"enrol_passkey":  {a.passkeys.enroll, true},

		"change_password": {a.passwords.change, true},
	}
}

// submit handles submitted forms.
func (a *account) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request", "setup", "passkey")
	}
	if err == nil {
		err = a.renderer.unseal(r, signedIn, p.Get("request"))
	}
	button := a.buttons()[p.Get("action")]
	if err == nil && button.handle == nil {
		err = errUnknownAction
	}
	switch {
	case err != nil:
		a.renderer.showError(w, r, err)
	case button.allowsOldSignIn || a.factors.mayChange(w, r, signedIn):
		button.handle(w, r, signedIn, p)
	}
}

// perform returns a handler that performs an action and then redirects to the page with a confirmation.
func (a *account) perform(do action) func(http.ResponseWriter, *http.Request, *session.SignedInPerson, oauth2.Parameters) {
	return func(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson, p oauth2.Parameters) {
		if err := do(r.Context(), signedIn, p); err != nil {
			a.renderer.showError(w, r, err)
			return
		}
		redirectWithConfirmation(w, p.Get("action"))
	}
}

const pageLifetime = time.Hour // lifetime of forms

// renderer shows the parts of the page and seals their forms.
type renderer struct {
	site    *page.Site
	trail   *audit.Recorder
	sealer  *browser.Sealer
	issuers []string // issuers of identity providers
	header  *signin.SessionHeader
}

var (
	errPageExpired       = oauth2.NewRestartError("This page has expired or was opened in another browser. Open your account again.")
	errFactorsAtProvider = oauth2.NewRestartError("Manage your second factor where you sign in.")
	errPasswordElsewhere = oauth2.NewRestartError("Your password can’t be changed here. Change it where you sign in, or contact the administrator of this site.")
	errUnknownAction     = oauth2.NewRestartError("The form was sent without a known action. Use one of the buttons on the page.")
)

// showError records a rejection and shows it on a page.
func (f *renderer) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	f.trail.RecordRejection(r, audit.Event{Kind: audit.KindFactor, Err: err})
	message := page.Message{Title: page.T("Something went wrong"), Text: page.T("This site has a temporary problem. Try again in a minute.")}
	switch {
	case e.IsUserCorrectable:
		message = page.Message{Title: page.T("Start again"), Text: page.ErrorText(e)}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("No changes were made"), Text: factorErrorText(err)}
	}
	message.Next = &page.Link{Address: endpoint.Account, Text: page.T("Back to your account")}
	f.showPage(w, r, page.View{Template: "message", Status: e.HTTPStatus(), Data: message})
}

// factorErrorText returns the page text for an error of a change of factors.
func factorErrorText(err error) *page.Text {
	switch {
	case errors.Is(err, factor.ErrAlreadyEnrolled):
		return page.T("You already set this up, maybe in another tab.")
	case errors.Is(err, factor.ErrConfiguredApp):
		return page.T("To change or remove your authenticator app, contact the administrator of this site.")
	case errors.Is(err, factor.ErrTooManyPasskeys):
		return page.T("You have the maximum number of passkeys. Remove one to add another.")
	case errors.Is(err, factor.ErrUnknownFactor):
		return page.T("This item was already removed.")
	}
	return page.T("Try again, or contact your organization’s IT help desk.")
}

// showPage shows a page with the signed-in person. Its forms may target this endpoint and, for a new sign-in, redirect to
// identity providers.
func (f *renderer) showPage(w http.ResponseWriter, r *http.Request, v page.View) {
	v.SignedIn = f.header.Current(w, r, signin.PageQuery(currentPart(r)))
	v.Policy.FormAction = page.FormActionSources(f.issuers...)
	f.site.Show(w, r, v)
}

// seal returns the form value that binds a page to the session and the browser.
func (f *renderer) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) (string, error) {
	return f.sealer.Seal(w, r, "account", signedIn.SID)
}

// unseal returns errPageExpired unless a form was shown in this session and browser less than pageLifetime ago.
func (f *renderer) unseal(r *http.Request, signedIn *session.SignedInPerson, sealed string) error {
	return f.sealer.Check(r, "account", sealed, signedIn.SID, pageLifetime, errPageExpired)
}

// redirectToSignIn redirects to the sign-in page with the parameters in ask, and from there back to the current part.
func redirectToSignIn(w http.ResponseWriter, r *http.Request, ask url.Values) {
	q := currentPart(r)
	maps.Copy(q, ask)
	target := endpoint.Login
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	endpoint.Redirect(w, http.StatusSeeOther, target)
}

// currentPart returns the parameter for the current part of the page, or no parameter.
func currentPart(r *http.Request) url.Values {
	if part := r.URL.Query().Get("part"); part != "" {
		return url.Values{"part": {part}}
	}
	return url.Values{}
}

func redirectWithConfirmation(w http.ResponseWriter, action string) {
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Account+"?"+url.Values{"done": {action}}.Encode())
}

// confirmations maps actions to the texts shown after them.
var confirmations = map[string]*page.Text{
	"end_app":        page.T("The app no longer has access."),
	"end_apps":       page.T("No app has access anymore."),
	"end_session":    page.T("You’re signed out of that session."),
	"end_sessions":   page.T("You’re signed out everywhere else."),
	"remove_app":     page.T("Authenticator app removed. You’re signed out everywhere else."),
	"remove_passkey": page.T("Passkey removed. You’re signed out everywhere else."),
	"rename_passkey": page.T("Passkey renamed."),
	"enrol_app":      page.T("Your authenticator app is set up."),
	"enrol_passkey":  page.T("Your passkey is set up."),
}
