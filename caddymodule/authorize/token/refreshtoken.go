package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// refreshToken is the refresh token grant (RFC 6749 §6).
var refreshToken = grantType{
	rules: client.GrantType{
		Name: refreshGrant, Registrable: true, Allows: usesCodes, Offered: (*client.Client).CanRefresh,
	},
	exchange: (*tokenEndpoint).exchangeRefreshToken,
	client: func(e *tokenEndpoint, ctx context.Context, p oauth2.Parameters) (*client.Client, error) {
		return e.families.clientOf(ctx, p)
	},
}

// exchangeRefreshToken gives the next tokens. Each use replaces the token. A second use means that it was stolen, and revokes the grant (RFC 9700 §4.14.2).
// Shortly after the first, though, the client may have missed the response, and is given
// the same token again. This gains a thief nothing: thief and client then hold one token,
// and its second use is detected.
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

// rotateRefreshToken stores the next token last, so that the client can try again if
// anything fails before. If a concurrent request uses the token, the error is
// [store.ErrChanged], and the token must be checked again.
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
