package authorize

import (
	"context"
	"errors"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"net/http"
	"slices"
	"strings"
)

// tokenResponse is the answer of the token endpoint (RFC 6749 §5.1).
type tokenResponse struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope"`
	IDToken     string `json:"id_token,omitempty"`
	Refresh     string `json:"refresh_token,omitempty"`
}

// token is the token endpoint (RFC 6749 §3.2).
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.FormParameters(w, r)
	var response *tokenResponse
	if err == nil {
		response, err = s.exchange(r, p)
	}
	event := audit.Event{Kind: audit.Token, Grant: p.Get("grant_type"), Err: err}
	if err != nil {
		s.recordRefusal(r, event)
		s.writeError(w, r, err)
		return
	}
	s.record(r.Context(), event)
	s.writeJSON(w, http.StatusOK, response)
}

// exchange authenticates the client before it looks at what the client wants.
func (s *Server) exchange(r *http.Request, p oauth2.Parameters) (*tokenResponse, error) {
	client, err := s.authenticateClient(r, p)
	if err != nil {
		return nil, err
	}
	grants := map[string]func(context.Context, *Client, oauth2.Parameters) (*tokenResponse, error){
		"authorization_code": s.exchangeCode,
		"client_credentials": s.exchangeCredentials,
		"refresh_token":      s.exchangeRefreshToken,
	}
	grantType := p.Get("grant_type")
	exchange := grants[grantType]
	switch {
	case grantType == "":
		return nil, oauth2.InvalidRequest("grant_type is missing")
	case exchange == nil:
		return nil, &oauth2.Error{Code: "unsupported_grant_type", Description: "grant_type must be authorization_code, client_credentials or refresh_token"}
	case !client.mayGrant(grantType):
		return nil, &oauth2.Error{Code: "unauthorized_client", Description: "the client may not use this grant_type"}
	}
	if err := s.checkResource(p); err != nil {
		return nil, err
	}
	return exchange(r.Context(), client, p)
}

// exchangeCode is the authorization code grant (RFC 6749 §4.1.3). That the code was
// used is stored last: whatever fails before, the client can try again.
func (s *Server) exchangeCode(ctx context.Context, client *Client, p oauth2.Parameters) (*tokenResponse, error) {
	g, err := s.redeemable(ctx, client, p)
	if err != nil {
		return nil, err
	}
	t, err := s.issue(ctx, g, s.accessTokenLifetime)
	if err != nil {
		return nil, err
	}
	if t.refresh, err = s.startFamily(ctx, g); err != nil {
		return nil, err
	}
	if err := s.redeem(ctx, g); err != nil {
		return nil, err
	}
	if t.refresh != "" {
		s.keepFamily(ctx, g)
	}
	return t.response(g.scope()), nil
}

// exchangeCredentials is the client credentials grant (RFC 6749 §4.4). Nobody
// signed in, so only system scopes make sense.
func (s *Server) exchangeCredentials(ctx context.Context, client *Client, p oauth2.Parameters) (*tokenResponse, error) {
	scope, err := systemScope(client, p.Get("scope"))
	if err != nil {
		return nil, err
	}
	t, err := s.issueToClient(ctx, client, scope)
	if err != nil {
		return nil, err
	}
	return t.response(strings.Join(scope, " ")), nil
}

// systemScope grants what is asked, or all system scopes the client has where
// nothing is.
func systemScope(client *Client, asked string) ([]string, error) {
	notSystem := func(scope string) bool { return !isSystemScope(scope) }
	scope := slices.DeleteFunc(slices.Clone(client.Scopes), notSystem)
	var err error
	if asked != "" {
		scope, err = grantScope(client, asked)
	}
	if err == nil && (len(scope) == 0 || slices.ContainsFunc(scope, notSystem)) {
		err = invalidScope(errors.New("client_credentials gives system scopes alone"))
	}
	return scope, err
}

func (t *tokens) response(scope string) *tokenResponse {
	return &tokenResponse{
		AccessToken: t.access, TokenType: "Bearer", ExpiresIn: int64(t.lifetime.Seconds()),
		Scope: scope, IDToken: t.id, Refresh: t.refresh,
	}
}
