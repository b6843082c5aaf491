package token

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// clientCredentials is the client credentials grant (RFC 6749 §4.4), of clients that act for
// themselves.
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

// exchangeCredentials gives system scopes only, as there is no user.
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
