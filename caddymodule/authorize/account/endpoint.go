package account

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Config is what the page needs.
type Config struct {
	*endpoint.Responder
	Pages    *page.Site        // shows it
	Keys     keyring.Sealing   // seal its forms
	Accounts *people.Accounts  // whose it is
	Factors  *factor.Factors   // what they enrol
	Sessions *session.Sessions // where they are signed in
	Patients *launch.Patients  // whose records apps have access to
	Apps     *token.Apps       // who has access in their name
	Revoker  *token.Revoker    // ends that
	Limiter  *lockout.Limiter  // counts wrong codes
	Describe Describe          // says what apps may do
}

// New returns the endpoint.
func New(c Config) http.Handler {
	frame := &frame{site: c.Pages, trail: c.Trail, sealer: &browser.Sealer{Keys: c.Keys}, issuers: c.Accounts.Issuers()}
	sessions := &sessions{listing: session.Listing{Sessions: c.Sessions}, providers: c.Accounts.Providers, turns: fairqueue.New(1)}
	factors := &factors{frame: frame, kept: c.Factors, sessions: sessions}
	a := &account{
		frame: frame, sessions: sessions, factors: factors,
		apps:     &apps{all: c.Apps, patients: c.Patients, logger: c.Logger, revoker: c.Revoker, describe: c.Describe},
		app:      &authenticatorApp{frame: frame, factors: factors, limiter: c.Limiter, issuer: c.Issuer},
		passkeys: &passkeys{frame, factors},
	}
	return c.Handler(a.serve, http.MethodGet, http.MethodPost)
}

func (a *account) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.sessions.listing.Sessions.Current(r)
	switch {
	case err != nil:
		a.frame.showError(w, r, err)
	case signedIn == nil, signedIn.Renewable:
		signIn(w, r, nil)
	case r.Method == http.MethodPost:
		a.submit(w, r, signedIn)
	default:
		a.show(w, r, signedIn)
	}
}

// show shows the page, or a part of it. A session that lacks the person's second factor has to prove it first.
func (a *account) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	lacking, err := a.factors.kept.Lacking(r.Context(), signedIn.User, by(signedIn))
	switch {
	case err != nil:
		a.frame.showError(w, r, err)
	case lacking:
		signIn(w, r, nil)
	default:
		a.showPart(w, r, signedIn)
	}
}

func (a *account) showPart(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	show := map[string]func(http.ResponseWriter, *http.Request, *session.SignedIn){"app": a.app.show, "passkey": a.passkeys.show}[r.URL.Query().Get("part")]
	if show == nil {
		a.showOverview(w, r, signedIn)
		return
	}
	if a.factors.mayChange(w, r, signedIn) {
		show(w, r, signedIn)
	}
}

// A button of the page. To use it, a person must be allowed to change their factors now, unless it
// says otherwise.
type button struct {
	do     func(http.ResponseWriter, *http.Request, *session.SignedIn, oauth2.Parameters)
	anyAge bool // being signed in is enough; or what it needs was sealed soon after a sign-in
}

// action is what most buttons do, to what the form names as target.
type action func(ctx context.Context, signedIn *session.SignedIn, p oauth2.Parameters) error

func (a *account) buttons() map[string]button {
	return map[string]button{
		"end_app":        {a.perform(a.apps.end), true},
		"end_apps":       {a.perform(a.apps.endAll), true},
		"end_session":    {a.perform(a.sessions.end), true},
		"end_sessions":   {a.perform(a.sessions.endOthers), true},
		"remove_app":     {do: a.perform(a.app.remove)},
		"remove_passkey": {do: a.perform(a.passkeys.remove)},
		"rename_passkey": {do: a.perform(a.passkeys.rename)},
		"renew_recovery": {do: a.factors.renewRecovery},
		"enrol_app":      {a.app.enrol, true},
		"enrol_passkey":  {a.passkeys.enrol, true},
	}
}

// submit handles the page's forms.
func (a *account) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request", "setup", "passkey")
	}
	if err == nil {
		err = a.frame.unseal(r, signedIn, p.Get("request"))
	}
	button := a.buttons()[p.Get("action")]
	if err == nil && button.do == nil {
		err = errNoAction
	}
	switch {
	case err != nil:
		a.frame.showError(w, r, err)
	case button.anyAge || a.factors.mayChange(w, r, signedIn):
		button.do(w, r, signedIn, p)
	}
}

// perform returns what performs an action, and shows the page again.
func (a *account) perform(do action) func(http.ResponseWriter, *http.Request, *session.SignedIn, oauth2.Parameters) {
	return func(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
		if err := do(r.Context(), signedIn, p); err != nil {
			a.frame.showError(w, r, err)
			return
		}
		showDone(w, p.Get("action"))
	}
}
