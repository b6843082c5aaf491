package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// exchangeRefreshToken is the refresh token grant (RFC 6749 §6). The token is
// followed by a new one. Who comes with one that was followed already is a thief,
// or the thief was here before (RFC 9700 §4.14.2): all that the grant gave ends.
// A client that repeats a request, because the answer did not reach it, is not
// taken for one: for a moment it is given the same successor once more. To a
// thief who is as fast this gives nothing new, because thief and client now hold
// the same token, and the second of them to use it is noticed.
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

// rotateRefreshToken gives what a refresh token is good for. The token that follows it
// is stored last: whatever fails before, the client can try again. Where another
// request uses the token at the same time, the error is [store.ErrChanged], and the token is
// to be looked at once more, as one that was followed.
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
	if t.refresh, err = e.families.rotate(ctx, f, stored, token); err != nil {
		return nil, err
	}
	return t.response(g.ScopeText()), nil
}

// narrowScope is what is asked of a granted scope, all of it where nothing is
// (RFC 6749 §6).
func narrowScope(granted []string, asked string) ([]string, error) {
	if asked == "" {
		return granted, nil
	}
	scopes, err := smart.ParseScopes(asked)
	if err == nil {
		scopes, err = smart.Grant(scopes, granted)
	}
	if err != nil {
		return nil, &oauth2.Error{Code: "invalid_scope", Description: "the scope is malformed, or more than was granted", Err: err}
	}
	return scopes, nil
}
