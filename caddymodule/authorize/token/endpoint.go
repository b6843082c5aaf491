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
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope"`
	IDToken     string `json:"id_token,omitempty"`
	Refresh     string `json:"refresh_token,omitempty"`

	*launch.Context // SMART App Launch 2.2; nil without launch context
}

type tokenEndpoint struct {
	*endpoint.Responder
	fhirBase      string
	authenticator *client.Authenticator
	issuer        *Issuer
	codes         *Codes
	families      *families
	count         Count
}

// grantType is a grant type of the token endpoint. The zero value rejects every client.
type grantType struct {
	rules client.GrantType // clients that may use the grant type

	// exchange handles a token request; nil: not a grant_type of the token endpoint.
	exchange func(*tokenEndpoint, context.Context, *client.Client, oauth2.Parameters) (*tokenResponse, error)

	// client finds the client of a request without client_id; nil: client_id is required.
	client func(*tokenEndpoint, context.Context, oauth2.Parameters) (*client.Client, error)
}

func (e *tokenEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	var p oauth2.Parameters
	err := e.count(w, r, "", true)
	if err == nil {
		p, err = e.authenticator.Form(w, r)
	}
	var response *tokenResponse
	if err == nil {
		response, err = e.exchange(w, r, p)
	}
	event := audit.Event{Kind: audit.Token, Grant: p.Get("grant_type"), Err: err}
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
		err = e.count(w, r, client.ID, client.Public())
	}
	if err != nil {
		return nil, err
	}
	if p.Get("grant_type") == "" {
		return nil, oauth2.InvalidRequest("grant_type is missing")
	}
	grant := grantTypeOf(p)
	if err := grant.check(client); err != nil {
		return nil, err
	}
	if err := CheckResource(p, e.fhirBase); err != nil {
		return nil, err
	}
	return grant.exchange(e, r.Context(), client, p)
}

// unnamedClient returns the client of a request without client_id, if the grant type permits that.
func (e *tokenEndpoint) unnamedClient(ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
	if grant := grantTypeOf(p); grant.client != nil {
		return grant.client(e, ctx, p)
	}
	return nil, client.ErrNoClientID
}

func (t *Issued) response(scope string, context *launch.Context) *tokenResponse {
	return &tokenResponse{
		AccessToken: t.Access, TokenType: "Bearer", ExpiresIn: int64(t.Lifetime.Seconds()),
		Scope: scope, IDToken: t.ID, Refresh: t.refresh, Context: context,
	}
}

// CheckResource rejects a resource other than the FHIR server (RFC 8707 §2).
func CheckResource(p oauth2.Parameters, fhirBase string) error {
	resource := p.Get("resource")
	if resource != "" && strings.TrimSuffix(resource, "/") != fhirBase {
		return &oauth2.Error{Code: "invalid_target", Description: "resource is not the FHIR server that this authorization server is for"}
	}
	return nil
}

// check rejects clients that may not use the grant type, and grant types unsupported at the token endpoint.
func (g grantType) check(c *client.Client) error {
	switch {
	case g.exchange == nil:
		names := GrantTypes().AtTokenEndpoint()
		last := len(names) - 1
		return &oauth2.Error{
			Code: "unsupported_grant_type", Description: "grant_type must be " + strings.Join(names[:last], ", ") + " or " + names[last],
		}
	case g.rules.Allows == nil, !g.rules.Allows(c):
		return &oauth2.Error{Code: "unauthorized_client", Description: "the client may not use this grant_type"}
	}
	return nil
}

// grantTypeOf returns the grant type of a request, or the zero value.
func grantTypeOf(p oauth2.Parameters) (found grantType) {
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

// grantTypes lists all grant types. Adding one takes a value like those below and its name here:
// the token endpoint, discovery, client configuration and registration, and metrics use this list.
var grantTypes = []grantType{authorizationCode, implicit, clientCredentials, refreshToken}

// implicit is the grant type of tokens from the authorization endpoint (RFC 6749 §4.2), listed in
// the discovery document.
var implicit = grantType{rules: client.GrantType{
	Name: "implicit",
	IsUsable: func(c *client.Client) bool {
		return slices.ContainsFunc(c.ResponseTypes, func(t string) bool { return t != "code" })
	},
}}

// authorizationCode is the authorization code grant (RFC 6749 §4.1.3).
var authorizationCode = grantType{
	rules: client.GrantType{
		Name: client.AuthorizationCode, Always: true, Registrable: true, Allows: usesCodes,
		Check: func(c *client.Client) error {
			if !usesCodes(c) {
				return errors.New("needs a redirect_uri and response_type code")
			}
			return nil
		},
	},
	exchange: (*tokenEndpoint).exchangeCode,
}

func usesCodes(c *client.Client) bool { return c.AllowsResponseType("code") }

// exchangeCode marks the code as used last, so that the client can retry after any earlier failure.
func (e *tokenEndpoint) exchangeCode(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	g, err := e.codes.redeemable(ctx, client, p)
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.Issue(ctx, g, e.issuer.AccessTokenLifetime)
	if err != nil {
		return nil, err
	}
	start, err := e.families.start(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := e.codes.redeem(ctx, client, g, start); err != nil {
		return nil, err
	}
	if start != nil {
		t.refresh = start.token
	}
	return t.response(g.ScopeText(), g.Launch), nil
}

// clientCredentials is the client credentials grant (RFC 6749 §4.4), for backend services.
var clientCredentials = grantType{
	rules: client.GrantType{
		Name: credentialsGrant, Allows: usesCredentials,
		Check: func(c *client.Client) error {
			if c.Public() {
				return errors.New("needs a secret, jwks or jwks_uri")
			}
			return nil
		},
	},
	exchange: (*tokenEndpoint).exchangeCredentials,
}

const credentialsGrant = "client_credentials"

func usesCredentials(c *client.Client) bool { return slices.Contains(c.GrantTypes, credentialsGrant) }

// exchangeCredentials grants system scopes only, because there is no user.
func (e *tokenEndpoint) exchangeCredentials(ctx context.Context, client *client.Client, p oauth2.Parameters) (*tokenResponse, error) {
	scope, err := client.GrantSystemScope(p.Get("scope"))
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.issueToClient(ctx, client, scope)
	if err != nil {
		return nil, err
	}
	return t.response(strings.Join(scope, " "), nil), nil
}

// refreshToken is the refresh token grant (RFC 6749 §6).
var refreshToken = grantType{
	rules: client.GrantType{
		Name: refreshGrant, Registrable: true, Allows: usesCodes, IsUsable: (*client.Client).CanRefresh,
	},
	exchange: (*tokenEndpoint).exchangeRefreshToken,
	client: func(e *tokenEndpoint, ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
		return e.families.clientOf(ctx, p)
	},
}

// exchangeRefreshToken rotates a refresh token. Reuse reveals theft and revokes the grant (RFC 9700
// §4.14.2). Within the grace period the client may have missed the response and gets the same successor
// again. This does not help a thief: thief and client then share one token, and its second use is detected.
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

// rotateRefreshToken stores the successor last, so that the client can retry after any earlier failure. If a
// concurrent request rotates the token, the error is [store.ErrChanged], and the token must be checked again.
func (e *tokenEndpoint) rotateRefreshToken(ctx context.Context, client *client.Client, token, asked string) (*tokenResponse, error) {
	f, stored, err := e.families.find(ctx, token)
	if err != nil {
		return nil, err
	}
	g, err := e.families.redeemable(ctx, f, client, token, asked)
	if err != nil {
		return nil, err
	}
	t, err := e.issuer.Issue(ctx, g, e.issuer.AccessTokenLifetime)
	if err != nil {
		return nil, err
	}
	if t.refresh, err = e.families.rotate(ctx, client, f, stored, token); err != nil {
		return nil, err
	}
	return t.response(g.ScopeText(), g.Launch), nil
}
