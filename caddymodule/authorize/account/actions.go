package account

import (
	"context"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// action is what a button of the page does, to what the form names as target.
type action func(ctx context.Context, signedIn *session.SignedIn, p oauth2.Parameters) error

// actions end access and sessions, for which being signed in is enough.
func (a *account) actions() map[string]action {
	return map[string]action{
		"end_app": func(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
			if p.Get("target") == "" { // which would be all
				return errNoAction
			}
			return a.Revoker.EndApps(ctx, s.User.ID, p.Get("target"))
		},
		"end_apps": func(ctx context.Context, s *session.SignedIn, _ oauth2.Parameters) error {
			return a.Revoker.EndApps(ctx, s.User.ID, "")
		},
		"end_session": func(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
			audit.NoteSessionEndReason(ctx, "the person ended it from elsewhere")
			return a.Sessions.EndOwn(ctx, s.User.ID, p.Get("target"))
		},
		"end_sessions": a.endOtherSessions,
	}
}

// changes change factors, for which the sign-in must be recent.
func (a *account) changes() map[string]action {
	return map[string]action{"remove_app": a.removeApp, "remove_passkey": a.removePasskey, "rename_passkey": a.renamePasskey}
}

// endOtherSessions ends all sessions but this one.
func (a *account) endOtherSessions(ctx context.Context, s *session.SignedIn, _ oauth2.Parameters) error {
	leave, err := a.turns.Enter(ctx, s.User.ID)
	if err != nil {
		return err
	}
	defer leave()
	audit.NoteSessionEndReason(ctx, "the person ended it from elsewhere")
	return a.Sessions.EndOthers(ctx, s.User.ID, s.SID)
}

// submit handles the page's forms.
func (a *account) submit(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request", "setup", "passkey")
	}
	if err == nil {
		err = a.unseal(r, signedIn, p.Get("request"))
	}
	if err != nil {
		a.showError(w, r, err)
		return
	}
	name := p.Get("action")
	switch do, change := a.actions()[name], a.changes()[name]; {
	case do != nil:
		a.perform(w, r, signedIn, p, do)
	case change != nil:
		if a.mayChange(w, r, signedIn) {
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
		a.enrolApp(w, r, signedIn, p)
	case "enrol_passkey":
		a.enrolPasskey(w, r, signedIn, p)
	case "renew_recovery":
		if a.mayChange(w, r, signedIn) {
			a.renewRecovery(w, r, signedIn)
		}
	default:
		a.showError(w, r, errNoAction)
	}
}

// perform performs an action, and shows the page again.
func (a *account) perform(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn, p oauth2.Parameters, do action) {
	if err := do(r.Context(), signedIn, p); err != nil {
		a.showError(w, r, err)
		return
	}
	a.showDone(w, p.Get("action"))
}

func (a *account) showDone(w http.ResponseWriter, what string) {
	redirect(w, endpoint.Account+"?"+url.Values{"done": {what}}.Encode())
}

// record records a change of a person's factors.
func (a *account) record(ctx context.Context, signedIn *session.SignedIn, what string, err error) {
	a.Trail.Record(ctx, audit.Event{Kind: audit.Factor, User: signedIn.User.ID, Reason: what, Err: err})
}

func (a *account) renewRecovery(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	codes, err := a.Factors.RenewRecovery(r.Context(), signedIn.User)
	a.record(r.Context(), signedIn, "new recovery codes", err)
	if err != nil {
		a.showError(w, r, err)
		return
	}
	a.showRecovery(w, r, codes, page.T("Your earlier recovery codes no longer work."))
}

// showRecovery shows new recovery codes, for the only time.
func (a *account) showRecovery(w http.ResponseWriter, r *http.Request, codes []string, done *page.Text) {
	a.view(w, r, page.View{Template: "recoverycodes", Data: page.RecoveryCodes{Codes: codes, Done: done}})
}

// showEnrolled shows what was enrolled, with the recovery codes if these are the first.
func (a *account) showEnrolled(w http.ResponseWriter, r *http.Request, action string, codes []string) {
	if codes == nil {
		a.showDone(w, action)
		return
	}
	a.showRecovery(w, r, codes, done[action])
}
