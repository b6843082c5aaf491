package account

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// done are what the page says after an action.
var done = map[string]*page.Text{
	"end_app":        page.T("The app no longer has access."),
	"end_apps":       page.T("No app has access any more."),
	"end_session":    page.T("You are signed out of that session."),
	"end_sessions":   page.T("You are signed out everywhere else."),
	"remove_app":     page.T("Your authenticator app is removed, and you are signed out everywhere else."),
	"remove_passkey": page.T("The passkey is removed, and you are signed out everywhere else."),
	"rename_passkey": page.T("The passkey has a new name."),
	"enrol_app":      page.T("Your authenticator app is set up."),
	"enrol_passkey":  page.T("Your passkey is set up."),
}

// showOverview shows the whole page.
func (a *account) showOverview(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	sealed, err := a.frame.seal(w, r, signedIn)
	data := page.Account{Request: sealed, Person: page.Person(signedIn.User.Label()), Done: done[r.URL.Query().Get("done")]}
	if err == nil {
		data.Apps, err = a.apps.shown(r.Context(), signedIn)
	}
	if err == nil {
		data.Sessions, err = a.sessions.shown(r.Context(), signedIn)
	}
	if err == nil {
		data.Factors, err = a.factors.shown(r.Context(), signedIn, a.sessions.provider(signedIn.Provider))
	}
	if err != nil {
		a.frame.showError(w, r, err)
		return
	}
	a.frame.view(w, r, page.View{Template: "account", Data: data})
}
