package token

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// tokenResponse is a successful response (RFC 6749 §5.1).
type tokenResponse struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	Scope        string `json:"scope"`
	IDToken      string `json:"id_token,omitempty"`
	RefreshToken string `json:"refresh_token,omitempty"`

	*launch.Context // SMART App Launch 2.2; nil if there is no launch context
}

type tokenEndpoint struct {
	*endpoint.Responder
	fhirBase      string
	authenticator *client.Authenticator
	issuer        *Issuer
	codes         *Codes
	families      *tokenFamilies
	countRequest  RequestCounter
}

// grantType is a grant type of the token endpoint. The zero value rejects every client.
type grantType struct {
	rules client.GrantType // clients that may use the grant type

	// exchange handles a token request. It is nil for a grant type that the token endpoint does not accept.
	exchange func(*tokenEndpoint, context.Context, *client.Client, oauth2.Parameters) (*tokenResponse, error)

	// inferClient finds the client of a request without client_id. If it is nil, client_id is required.
	inferClient func(*tokenEndpoint, context.Context, oauth2.Parameters) (*client.Client, error)
}

func (e *tokenEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	var p oauth2.Parameters
	err := e.countRequest(w, r, "", true)
	if err == nil {
		p, err = e.authenticator.ParseForm(w, r)
	}
	var response *tokenResponse
	if err == nil {
		response, err = e.exchange(w, r, p)
	}
	event := audit.Event{Kind: audit.KindToken, GrantType: p.Get("grant_type"), Err: err}
	if err != nil {
		e.Trail.RecordRejection(r, event)
		e.WriteError(w, r, err)
		return
	}
	e.Trail.Record(r.Context(), event)
	e.WriteJSON(w, http.StatusOK, response)
}

func (e *tokenEndpoint) exchange(w http.ResponseWriter, r *http.Request, p oauth2.Parameters) (*tokenResponse, error) {
	client, err := e.authenticator.Authenticate(r, p)
	if err == nil {
		err = e.countRequest(w, r, client.ID, client.IsPublic())
	}
	if err != nil {
		return nil, err
	}
	if p.Get("grant_type") == "" {
		return nil, oauth2.InvalidRequest("grant_type is missing")
	}
	grant := findGrantType(p)
	if err := grant.checkClient(client); err != nil {
		return nil, err
	}
	if err := CheckResource(p, e.fhirBase); err != nil {
		return nil, err
	}
	return grant.exchange(e, r.Context(), client, p)
}

// inferClient returns the client of a request that has no client_id, if the grant type permits that.
func (e *tokenEndpoint) inferClient(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	if grant := findGrantType(p); grant.inferClient != nil {
		return grant.inferClient(e, ctx, p)
	}
	return nil, client.ErrNoClientID
}

func (t *IssuedTokens) newResponse(scope string, context *launch.Context) *tokenResponse {
	return &tokenResponse{
		AccessToken: t.AccessToken, TokenType: "Bearer", ExpiresIn: int64(t.Lifetime.Seconds()),
		Scope: scope, IDToken: t.IDToken, RefreshToken: t.refreshToken, Context: context,
	}
}

// CheckResource returns an error for a resource other than the FHIR server (RFC 8707 §2).
func CheckResource(p oauth2.Parameters, fhirBase string) error {
	resource := p.Get("resource")
	if resource != "" && strings.TrimSuffix(resource, "/") != fhirBase {
		return &oauth2.Error{Code: "invalid_target", Description: "resource does not match the FHIR server of this authorization server"}
	}
	return nil
}

// checkClient returns an error for a client that may not use the grant type, and for a grant type that the token endpoint does
// not accept.
func (g grantType) checkClient(c *client.Client) error {
	switch {
	case g.exchange == nil:
		names := GrantTypes().TokenEndpointNames()
		last := len(names) - 1
		return &oauth2.Error{
			Code: "unsupported_grant_type", Description: "grant_type must be " + strings.Join(names[:last], ", ") + " or " + names[last],
		}
	case g.rules.Allows == nil, !g.rules.Allows(c):
		return &oauth2.Error{Code: "unauthorized_client", Description: "the client is not permitted to use this grant_type"}
	}
	return nil
}

// findGrantType returns the grant type of a request, or the zero value.
func findGrantType(p oauth2.Parameters) (found grantType) {
	if i := slices.IndexFunc(grantTypes, func(g grantType) bool { return g.rules.Name == p.Get("grant_type") }); i >= 0 {
		found = grantTypes[i]
	}
	return found
}

// GrantTypes returns the rules of all grant types.
func GrantTypes() client.GrantTypes {
	rules := make(client.GrantTypes, len(grantTypes))
	for i, g := range grantTypes {
		rules[i] = g.rules
	}
	return rules
}

// grantTypes lists all grant types. To add a grant type, define a value like those below and add it here. The token endpoint,
// discovery, client configuration and registration, and metrics use this list.
var grantTypes = []grantType{authorizationCodeGrant, implicitGrant, clientCredentialsGrant, refreshTokenGrant}

// implicitGrant is the grant type of tokens from the authorization endpoint (RFC 6749 §4.2), listed in
// the discovery document.
var implicitGrant = grantType{rules: client.GrantType{
	Name: "implicit",
	IsUsable: func(c *client.Client) bool {
		return slices.ContainsFunc(c.ResponseTypes, func(t string) bool { return t != "code" })
	},
}}

// authorizationCodeGrant is the authorization code grant (RFC 6749 §4.1.3).
var authorizationCodeGrant = grantType{
	rules: client.GrantType{
		Name: client.GrantTypeAuthorizationCode, AlwaysListed: true, Registrable: true, Allows: usesCodes,
		CheckClient: func(c *client.Client) error {
			if !usesCodes(c) {
				return errors.New("requires a redirect_uri and response_type code")
			}
			return nil
		},
	},
	exchange: (*tokenEndpoint).exchangeCode,
}

func usesCodes(c *client.Client) bool { return c.AllowsResponseType("code") }

// exchangeCode redeems a code. It marks the code as used last, so that the client can retry after any earlier failure.
func (e *tokenEndpoint) exchangeCode(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	g, err := e.codes.findRedeemable(ctx, client, p)
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.Issue(ctx, g, e.issuer.AccessTokenLifetime)
	if err != nil {
		return nil, err
	}
	pending, err := e.families.newPendingFamily(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := e.codes.redeem(ctx, client, g, pending); err != nil {
		return nil, err
	}
	if pending != nil {
		t.refreshToken = pending.token
	}
	return t.newResponse(g.ScopeString(), g.Launch), nil
}

// clientCredentialsGrant is the client credentials grant (RFC 6749 §4.4), for backend services.
var clientCredentialsGrant = grantType{
	rules: client.GrantType{
		Name: grantTypeCredentials, Allows: usesCredentials,
		CheckClient: func(c *client.Client) error {
			if c.IsPublic() {
				return errors.New("requires a secret, jwks or jwks_uri")
			}
			return nil
		},
	},
	exchange: (*tokenEndpoint).exchangeCredentials,
}

const grantTypeCredentials = "client_credentials"

func usesCredentials(c *client.Client) bool {
	return slices.Contains(c.GrantTypes, grantTypeCredentials)
}

// exchangeCredentials issues a token to a backend service. It grants only system scopes, because there is no user.
func (e *tokenEndpoint) exchangeCredentials(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	scope, err := client.GrantSystemScope(p.Get("scope"))
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.issueToClient(ctx, client, scope)
	if err != nil {
		return nil, err
	}
	return t.newResponse(strings.Join(scope, " "), nil), nil
}

// refreshTokenGrant is the refresh token grant (RFC 6749 §6).
var refreshTokenGrant = grantType{
	rules: client.GrantType{
		Name: grantTypeRefreshToken, Registrable: true, Allows: usesCodes, IsUsable: (*client.Client).CanRefresh,
	},
	exchange: (*tokenEndpoint).exchangeRefreshToken,
	inferClient: func(e *tokenEndpoint, ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
		return e.families.inferClient(ctx, p)
	},
}

// exchangeRefreshToken rotates a refresh token. Reuse reveals theft and revokes the grant (RFC 9700 §4.14.2). Within the grace
// period the client may have missed the response and gets the same successor again. This does not help a thief, because thief
// and client then share one token, and its second use is detected.
func (e *tokenEndpoint) exchangeRefreshToken(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	token := p.Get("refresh_token")
	if token == "" {
		return nil, oauth2.InvalidRequest("refresh_token is missing")
	}
	for ctx.Err() == nil {
		response, err := e.rotateRefreshToken(ctx, client, token, p.Get("scope"))
		if !errors.Is(err, store.ErrChanged) {
			return response, err
		}
	}
	return nil, ctx.Err()
}

// rotateRefreshToken rotates a refresh token. It stores the successor last, so that the client can retry after any earlier
// failure. If a concurrent request rotates the token, the error is [store.ErrChanged], and the token must be checked again.
func (e *tokenEndpoint) rotateRefreshToken(ctx context.Context, client *client.Client, token, requested string) (*tokenResponse, error) {
	f, stored, err := e.families.find(ctx, token)
	if err != nil {
		return nil, err
	}
	g, err := e.families.findRedeemable(ctx, f, client, token, requested)
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.Issue(ctx, g, e.issuer.AccessTokenLifetime)
	if err != nil {
		return nil, err
	}
	if t.refreshToken, err = e.families.rotate(ctx, client, f, stored, token); err != nil {
		return nil, err
	}
	return t.newResponse(g.ScopeString(), g.Launch), nil
}
