package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

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

// exchangeCode marks the code as used last, so that the client can try again if anything fails
// before.
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
