package account

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

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
