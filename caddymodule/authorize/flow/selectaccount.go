package flow

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// showSelectAccount answers prompt=select_account (OpenID Connect Core §3.1.2.1). A browser
// has only one account signed in, so the choice is between that and another.
func (ps *pages) showSelectAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	ps.show(w, r, req, page.View{Template: "selectaccount", Data: page.SelectAccount{
		Request: p.Get("request"), Client: req.client.Title(), Person: page.Person(signedIn.User.Label()),
	}})
}

func (ps *signedInPages) submitSelectAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch p.Get("decision") {
	case "continue":
		ps.authorizer.authorize(w, r, req, signedIn)
	case "other":
		ps.signIn.redirectTo(w, r, req)
	default:
		ps.responses.showError(w, r, errNoDecision)
	}
}

var errNoDecision = oauth2.StartAgain("Use the buttons of the page. Go back to the app and start from there again.")
