package authorize

import (
	"context"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"net/http"
	"net/url"
)

// authorize is the authorization endpoint (RFC 6749 §3.1). It answers at once
// where the browser is signed in, and else sends it to the sign-in page.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.authorizePosted(w, r)
		return
	}
	pushed, err := s.pulled(r.Context(), r.URL.RawQuery)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	query := r.URL.RawQuery
	if pushed != nil {
		query = pushed.query
	}
	req, err := s.authorizationRequest(r.Context(), query)
	switch {
	case req != nil && pushed != nil:
		req.spend = pushed.spend
	case err == nil && req.client.RequirePushed:
		err = errMustPush
	}
	if !s.failed(w, r, req, err) {
		s.answerOrAsk(w, r, req)
	}
}

// authorizePosted turns a posted request into the same one by GET (SMART's
// capability authorize-post). The browser holds back our cookies from another
// site's POST, not from the GET that follows.
func (s *Server) authorizePosted(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.ReadForm(w, r)
	if err == nil {
		err = p.Check("request_uri")
	}
	if err == nil && r.URL.RawQuery != "" {
		err = oauth2.InvalidRequest("A posted request must have no query.")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", pathAuthorize+"?"+url.Values(p).Encode())
	w.WriteHeader(http.StatusSeeOther)
}

// authorizationRequest reads a request from its query. Where the request is nil,
// the error must not be sent to the redirect URI.
func (s *Server) authorizationRequest(ctx context.Context, query string) (*authorizationRequest, error) {
	p, malformed := oauth2.QueryParameters(query)
	req, err := s.destination(ctx, p)
	if err != nil {
		return nil, err
	}
	req.query = query
	if err := s.fill(ctx, req, p); err != nil {
		return req, err
	}
	return req, malformed
}

func (s *Server) answerOrAsk(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	signedIn, err := s.session(r)
	switch {
	case err != nil:
		s.redirectError(w, r, req, err)
	case signedIn == nil || !s.offer(req.client).serves(req, signedIn):
		s.askToSignIn(w, r, req)
	case req.prompts("select_account"):
		s.ask(w, r, pathSelectAccount, req, signedIn)
	default:
		s.answer(w, r, req, signedIn)
	}
}

// answer goes on with the person who is signed in: on to the client, unless they
// are not the one it means, have to consent first, or have not been asked for
// anything though another app may be behind the redirect URI (RFC 8252 §8.6). Who
// has just posted one of our forms was asked.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn) {
	ask, err := s.consented(r.Context(), req, signedIn.user)
	unseen := req.isInterceptable() && r.Method != http.MethodPost
	switch {
	case err != nil:
		s.redirectError(w, r, req, err)
	case !req.isFor(signedIn.user.ID):
		s.redirectError(w, r, req, &oauth2.Error{Code: "login_required", Description: "another person signed in than the one that is asked for"})
	case ask && req.prompts("none"):
		s.redirectError(w, r, req, &oauth2.Error{Code: "consent_required"})
	case unseen && req.prompts("none"):
		s.redirectError(w, r, req, &oauth2.Error{Code: "interaction_required", Description: "any app on the device could use this redirect_uri, so the person must confirm it"})
	case ask, unseen:
		s.ask(w, r, pathConsent, req, signedIn)
	default:
		s.give(w, r, req, signedIn)
	}
}

// give gives the client what it asked for.
func (s *Server) give(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn) {
	g, err := s.newGrant(r.Context(), req, signedIn)
	var a answerParameters
	if err == nil {
		a, err = s.makeAnswer(r.Context(), req, g)
	}
	if err == nil {
		err = s.joinSession(r.Context(), g)
	}
	if err == nil {
		err = req.spent(r.Context())
	}
	s.record(r.Context(), audit.Event{
		Kind: audit.Authorization, Grant: req.responseType, ClientID: g.ClientID, User: g.User, Scope: g.scope(), Err: err,
	})
	if err != nil {
		s.redirectError(w, r, req, err)
		return
	}
	s.send(w, r, req, req.mode, a)
}

func (s *Server) makeAnswer(ctx context.Context, req *authorizationRequest, g *grant) (answerParameters, error) {
	switch {
	case req.responds("code"):
		return s.codeAnswer(ctx, g)
	case req.responds("token"):
		return s.tokenAnswer(ctx, req, g)
	}
	return s.idTokenAnswer(ctx, g)
}
