package flow

import (
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// authorizationEndpoint receives authorization requests (RFC 6749 §3.1).
type authorizationEndpoint struct {
	frame      *signin.Frame
	pushed     *pushedRequests
	authorizer *authorizer
	signIn     *signin.SignIn
}

func (e *authorizationEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		e.servePOST(w, r)
		return
	}
	p, malformed := oauth2.ReadQuery(r.URL.RawQuery)
	e.authorizer.requests.clients.Note(r.Context(), p.Get("client_id"))
	pushed, err := e.pushed.find(r.Context(), p, malformed)
	if err != nil {
		e.frame.ShowError(w, r, err)
		return
	}
	query := r.URL.RawQuery
	if pushed != nil {
		query = pushed.query
	}
	req, err := e.authorizer.check(r.Context(), query)
	switch {
	case req != nil && pushed != nil:
		req.signIn.Once = pushed.once
	case err == nil && req.client.RequirePushed:
		err = errMustPush
	case err == nil:
		err = req.checkProtection()
	}
	if !e.frame.Failed(w, r, req.toSignIn(), err) {
		e.authorizeOrSignIn(w, r, req)
	}
}

// servePOST redirects a posted request to the same one by GET (SMART's capability
// authorize-post): browsers withhold our cookies from another site's POST, but not from GET.
func (e *authorizationEndpoint) servePOST(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.ReadForm(w, r)
	e.authorizer.requests.clients.Note(r.Context(), p.Get("client_id"))
	if err == nil {
		err = p.Check("request_uri")
	}
	if err == nil && r.URL.RawQuery != "" {
		err = oauth2.InvalidRequest("A posted request must have no query.")
	}
	if err != nil {
		e.frame.ShowError(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Authorize+"?"+url.Values(p).Encode())
}

func (e *authorizationEndpoint) authorizeOrSignIn(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	signedIn, err := e.signIn.Current(r, &req.signIn)
	var another *session.SignedIn
	if err == nil && signedIn == nil {
		another, err = e.signIn.IsForAnother(r, &req.signIn)
	}
	switch {
	case err != nil:
		req.signIn.Purpose.Refuse(w, r, err)
	case another != nil: // who must choose: any site may have sent the browser here, and must not sign them out
		redirectToPage(e.frame, w, r, endpoint.SelectAccount, req, another)
	case signedIn == nil:
		e.signIn.Begin(w, r, &req.signIn)
	case e.signIn.Renewal.Needed(w, r, &req.signIn, signedIn):
	case req.signIn.How.Prompts("select_account"):
		redirectToPage(e.frame, w, r, endpoint.SelectAccount, req, signedIn)
	default:
		e.authorizer.authorize(w, r, req, signedIn)
	}
}
