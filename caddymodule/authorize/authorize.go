package authorize

import (
	"context"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// authorizationEndpoint is where a sign-in begins.
type authorizationEndpoint struct {
	*step
	pushed   *pushes
	accounts *accounts
	sessions *sessions
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
	w.Header().Set("Location", pathAuthorize+"?"+url.Values(p).Encode())
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
	signedIn, err := e.sessions.session(r)
	switch {
	case err != nil:
		e.responses.redirectError(w, r, req, err)
	case signedIn == nil || !e.accounts.offer(req.client).serves(req, signedIn):
		e.signIns.askToSignIn(w, r, req)
	case req.prompts("select_account"):
		e.answers.ask(w, r, pathSelectAccount, req, signedIn)
	default:
		e.answers.answer(w, r, req, signedIn)
	}
}

// answers gives clients what they asked for, or asks the person first.
type answers struct {
	*step
	accounts     *accounts
	consents     *consents
	grants       *grants
	codes        *codes
	tokens       *tokenIssuer
	participants *participants
}

// answer goes on with the person who is signed in: on to the client, unless they
// are not the one it means, have to consent first, or have not been asked for
// anything though another app may be behind the redirect URI (RFC 8252 §8.6). Who
// has just posted one of our forms was asked.
func (an *answers) answer(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn) {
	ask, err := an.consented(r.Context(), req, signedIn.user)
	unseen := req.isInterceptable() && r.Method != http.MethodPost
	switch {
	case err != nil:
		an.responses.redirectError(w, r, req, err)
	case !req.isFor(signedIn.user.ID):
		an.responses.redirectError(w, r, req, &oauth2.Error{Code: "login_required", Description: "another person signed in than the one that is asked for"})
	case ask && req.prompts("none"):
		an.responses.redirectError(w, r, req, &oauth2.Error{Code: "consent_required"})
	case unseen && req.prompts("none"):
		an.responses.redirectError(w, r, req, &oauth2.Error{Code: "interaction_required", Description: "any app on the device could use this redirect_uri, so the person must confirm it"})
	case ask, unseen:
		an.ask(w, r, pathConsent, req, signedIn)
	default:
		an.give(w, r, req, signedIn)
	}
}

// give gives the client what it asked for.
func (an *answers) give(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn) {
	g, err := an.grants.newGrant(r.Context(), req, signedIn)
	var a answerParameters
	if err == nil {
		a, err = an.makeAnswer(r.Context(), req, g)
	}
	if err == nil {
		err = an.participants.joinSession(r.Context(), g)
	}
	if err == nil {
		err = req.spent(r.Context())
	}
	an.trail.record(r.Context(), audit.Event{
		Kind: audit.Authorization, Grant: req.responseType, ClientID: g.ClientID, User: g.User, Scope: g.scope(), Err: err,
	})
	if err != nil {
		an.responses.redirectError(w, r, req, err)
		return
	}
	an.responses.send(w, r, req, req.mode, a)
}

func (an *answers) makeAnswer(ctx context.Context, req *authorizationRequest, g *grant) (answerParameters, error) {
	switch {
	case req.responds("code"):
		return an.codes.codeAnswer(ctx, g)
	case req.responds("token"):
		return an.tokenAnswer(ctx, req, g)
	}
	return an.idTokenAnswer(ctx, g)
}
