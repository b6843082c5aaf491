package account

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
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
	case signedIn == nil:
		signIn(w, r, nil)
	case r.Method == http.MethodPost:
		a.submit(w, r, signedIn)
	default:
		a.show(w, r, signedIn)
	}
}

// show shows the page, or a part of it.
func (a *account) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	show := map[string]func(http.ResponseWriter, *http.Request, *session.SignedIn){"app": a.app.show, "passkey": a.passkeys.show}[r.URL.Query().Get("part")]
	if show == nil {
		a.showOverview(w, r, signedIn)
		return
	}
	if a.factors.mayChange(w, r, signedIn) {
		show(w, r, signedIn)
	}
}

// action is what a button of the page does, to what the form names as target.
type action func(ctx context.Context, signedIn *session.SignedIn, p oauth2.Parameters) error

// actions end access and sessions, for which being signed in is enough.
func (a *account) actions() map[string]action {
	return map[string]action{
		"end_app": a.apps.end, "end_apps": a.apps.endAll,
		"end_session": a.sessions.end, "end_sessions": a.sessions.endOthers,
	}
}

// changes change factors, for which the sign-in must be recent.
func (a *account) changes() map[string]action {
	return map[string]action{"remove_app": a.app.remove, "remove_passkey": a.passkeys.remove, "rename_passkey": a.passkeys.rename}
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
	if err != nil {
		a.frame.showError(w, r, err)
		return
	}
	name := p.Get("action")
	switch do, change := a.actions()[name], a.changes()[name]; {
	case do != nil:
		a.perform(w, r, signedIn, p, do)
	case change != nil:
		if a.factors.mayChange(w, r, signedIn) {
			a.perform(w, r, signedIn, p, change)
		}
	default:
		a.enrol(w, r, signedIn, p)
	}
}

// enrol handles the forms that set a factor up. They are sealed soon after a sign-in.
func (a *account) enrol(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch p.Get("action") {
	case "enrol_app":
		a.app.enrol(w, r, signedIn, p)
	case "enrol_passkey":
		a.passkeys.enrol(w, r, signedIn, p)
	case "renew_recovery":
		if a.factors.mayChange(w, r, signedIn) {
			a.factors.renewRecovery(w, r, signedIn)
		}
	default:
		a.frame.showError(w, r, errNoAction)
	}
}

// perform performs an action, and shows the page again.
func (a *account) perform(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters, do action) {
	if err := do(r.Context(), signedIn, p); err != nil {
		a.frame.showError(w, r, err)
		return
	}
	showDone(w, p.Get("action"))
}
