package flow

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

var selectAccountPages = parsePage("pages/selectaccount.html")

// selectAccountPage is what pages/selectaccount.html shows.
type selectAccountPage struct {
	Request string // sealed, see question.go
	Client  string
	Host    string
	Person  people.Label
}

// showSelectAccount answers prompt=select_account (OpenID Connect Core §3.1.2.1).
// One account at a time is signed in at a browser, so the choice is between that
// one and another.
func (ps *pages) showSelectAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	w.Header().Set("Content-Security-Policy", contentPolicy+ps.formAction(req.redirectURI))
	ps.show(w, r, http.StatusOK, selectAccountPages, selectAccountPage{
		Request: p.Get("request"), Client: req.client.Title(), Host: ps.host, Person: signedIn.User.Label(),
	})
}

func (q *questions) selectAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch p.Get("decision") {
	case "continue":
		q.answers.answer(w, r, req, signedIn)
	case "other":
		q.signIns.askToSignIn(w, r, req)
	default:
		q.responses.refuse(w, r, errNoDecision)
	}
}

var errNoDecision = oauth2.StartAgain("Use the buttons of the page. Go back to the app and start from there again.")
