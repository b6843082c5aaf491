package authorize

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"net/http"
)

var selectAccountPages = parsePage("pages/selectaccount.html")

// selectAccountPage is what pages/selectaccount.html shows.
type selectAccountPage struct {
	Request string // sealed, see question.go
	Client  string
	Host    string
	Person  person
}

// showSelectAccount answers prompt=select_account (OpenID Connect Core §3.1.2.1).
// One account at a time is signed in at a browser, so the choice is between that
// one and another.
func (s *Server) showSelectAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn, p oauth2.Parameters) {
	w.Header().Set("Content-Security-Policy", contentPolicy+s.formAction(req.redirectURI))
	s.show(w, r, http.StatusOK, selectAccountPages, selectAccountPage{
		Request: p.Get("request"), Client: req.client.Title(), Host: s.host, Person: signedIn.user.person(),
	})
}

func (s *Server) selectAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn, p oauth2.Parameters) {
	switch p.Get("decision") {
	case "continue":
		s.answer(w, r, req, signedIn)
	case "other":
		s.askToSignIn(w, r, req)
	default:
		s.refuse(w, r, errNoDecision)
	}
}

var errNoDecision = oauth2.StartAgain("Use the buttons of the page. Go back to the app and start from there again.")
