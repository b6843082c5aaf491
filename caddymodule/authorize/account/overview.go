package account

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// account is the endpoint. It routes to the parts of the page.
type account struct {
	frame    *frame
	sessions *sessions
	apps     *apps
	factors  *factors
	app      *authenticatorApp
	passkeys *passkeys
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
