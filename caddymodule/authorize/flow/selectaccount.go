package flow

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// accountChoice answers prompt=select_account (OpenID Connect Core §3.1.2.1), and requests for somebody else than who is signed
// in. A browser has only one account signed in, so the choice is between that and another.
type accountChoice struct {
	frame      *signin.Frame
	signIn     *signin.SignIn
	authorizer *authorizer
}

func (c *accountChoice) show(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	c.frame.Show(w, r, &req.signIn, page.View{Template: "selectaccount", Data: page.SelectAccount{
		Request: p.Get("request"), Client: req.client.Title(), Person: page.Person(signedIn.User.Label()),
	}}, c.signIn.EndSessionEndpoint(r, signedIn))
}

func (c *accountChoice) submit(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	how, decision := req.signIn.How, p.Get("decision")
	switch {
	case decision == "continue" && (how.Prompts("login") || how.TooOld(signedIn.Age, answerTime) || !how.IsFor(signedIn.User.ID)):
		c.signIn.BeginAgain(w, r, &req.signIn)
	case decision == "continue":
		c.authorizer.authorize(w, r, req, signedIn)
	case decision == "other":
		c.signIn.BeginAsAnother(w, r, &req.signIn, signedIn)
	default:
		c.frame.ShowError(w, r, errNoDecision)
	}
}
