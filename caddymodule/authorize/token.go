package authorize

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
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

// tokenEndpoint makes tokens of codes, refresh tokens and clients' credentials.
type tokenEndpoint struct {
	*responder
	accessTokenLifetime time.Duration
	fhirBase            string
	authenticator       *authenticator
	tokens              *tokenIssuer
	codes               *codes
	families            *families
}

// token is the token endpoint (RFC 6749 §3.2).
func (e *tokenEndpoint) token(w http.ResponseWriter, r *http.Request) {
	p, err := oauth2.FormParameters(w, r)
	var response *tokenResponse
	if err == nil {
		response, err = e.exchange(r, p)
	}
	event := audit.Event{Kind: audit.Token, Grant: p.Get("grant_type"), Err: err}
	if err != nil {
		e.trail.recordRefusal(r, event)
		e.responder.writeError(w, r, err)
		return
	}
	e.trail.record(r.Context(), event)
	e.responder.writeJSON(w, http.StatusOK, response)
}

// exchange authenticates the client before it looks at what the client wants.
func (e *tokenEndpoint) exchange(r *http.Request, p oauth2.Parameters) (*tokenResponse, error) {
	client, err := e.authenticator.authenticateClient(r, p)
	if err != nil {
		return nil, err
	}
	grants := map[string]func(context.Context, *Client, oauth2.Parameters) (*tokenResponse, error){
		"authorization_code": e.exchangeCode,
		"client_credentials": e.exchangeCredentials,
		"refresh_token":      e.exchangeRefreshToken,
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
	if err := checkResource(p, e.fhirBase); err != nil {
		return nil, err
	}
	return exchange(r.Context(), client, p)
}

// exchangeCode is the authorization code grant (RFC 6749 §4.1.3). That the code was
// used is stored last: whatever fails before, the client can try again.
func (e *tokenEndpoint) exchangeCode(ctx context.Context, client *Client, p oauth2.Parameters) (*tokenResponse, error) {
	g, err := e.codes.redeemable(ctx, client, p)
	if err != nil {
		return nil, err
	}
	t, err := e.tokens.issue(ctx, g, e.accessTokenLifetime)
	if err != nil {
		return nil, err
	}
	if t.refresh, err = e.families.startFamily(ctx, g); err != nil {
		return nil, err
	}
	if err := e.codes.redeem(ctx, g); err != nil {
		return nil, err
	}
	if t.refresh != "" {
		e.families.keepFamily(ctx, g)
	}
	return t.response(g.scope()), nil
}

// exchangeCredentials is the client credentials grant (RFC 6749 §4.4). Nobody
// signed in, so only system scopes make sense.
func (e *tokenEndpoint) exchangeCredentials(ctx context.Context, client *Client, p oauth2.Parameters) (*tokenResponse, error) {
	scope, err := systemScope(client, p.Get("scope"))
	if err != nil {
		return nil, err
	}
	t, err := e.tokens.issueToClient(ctx, client, scope)
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

func (t *issued) response(scope string) *tokenResponse {
	return &tokenResponse{
		AccessToken: t.access, TokenType: "Bearer", ExpiresIn: int64(t.lifetime.Seconds()),
		Scope: scope, IDToken: t.id, Refresh: t.refresh,
	}
}
