package flow

import (
	"context"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// authorizationEndpoint is where a sign-in begins.
type authorizationEndpoint struct {
	*step
	pushed   *pushes
	accounts *people.Accounts
	sessions *session.Sessions
	answers  *answers
	signIns  *signIns
}

// authorize is the authorization endpoint (RFC 6749 §3.1). It answers at once
// where the browser is signed in, and else sends it to the sign-in page.
func (e *authorizationEndpoint) authorize(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		e.authorizePosted(w, r)
		return
	}
	pushed, err := e.pushed.pulled(r.Context(), r.URL.RawQuery)
	if err != nil {
		e.responses.refuse(w, r, err)
		return
	}
	query := r.URL.RawQuery
	if pushed != nil {
		query = pushed.query
	}
	req, err := e.requests.authorizationRequest(r.Context(), query)
	switch {
	case req != nil && pushed != nil:
		req.spend = pushed.spend
	case err == nil && req.client.RequirePushed:
		err = errMustPush
	}
	if !e.responses.failed(w, r, req, err) {
		e.answerOrAsk(w, r, req)
	}
}

// authorizePosted turns a posted request into the same one by GET (SMART's
// capability authorize-post). The browser holds back our cookies from another
// site's POST, not from the GET that follows.
func (e *authorizationEndpoint) authorizePosted(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request_uri")
	}
	if err == nil && r.URL.RawQuery != "" {
		err = oauth2.InvalidRequest("A posted request must have no query.")
	}
	if err != nil {
		e.responses.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", endpoint.Authorize+"?"+url.Values(p).Encode())
	w.WriteHeader(http.StatusSeeOther)
}

// authorizationRequest reads a request from its query. Where the request is nil,
// the error must not be sent to the redirect URI.
func (q *requests) authorizationRequest(ctx context.Context, query string) (*authorizationRequest, error) {
	p, malformed := oauth2.QueryParameters(query)
	req, err := q.destination(ctx, p)
	if err != nil {
		return nil, err
	}
	req.query = query
	if err := q.fill(ctx, req, p); err != nil {
		return req, err
	}
	return req, malformed
}

func (e *authorizationEndpoint) answerOrAsk(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	signedIn, err := e.sessions.Current(r)
	switch {
	case err != nil:
		e.responses.redirectError(w, r, req, err)
	case signedIn == nil || !req.serves(e.accounts.Ways(req.client.IdentityProviders), signedIn):
		e.signIns.askToSignIn(w, r, req)
	case req.prompts("select_account"):
		e.answers.ask(w, r, endpoint.SelectAccount, req, signedIn)
	default:
		e.answers.answer(w, r, req, signedIn)
	}
}
