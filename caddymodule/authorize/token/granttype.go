package token

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// grantTypes are all that there are. A new one is a file of its own, and a line here: the token
// endpoint, discovery, the configuration and registration of clients and the metrics read this.
var grantTypes = []grantType{authorizationCode, implicit, clientCredentials, refreshToken}

// grantType is what the token endpoint gives tokens for. Its zero value is for nobody.
type grantType struct {
	rules client.GrantType // who may use it

	// exchange answers a request. nil: it is no grant_type of the token endpoint.
	exchange func(*tokenEndpoint, context.Context, *client.Client, oauth2.Parameters) (*tokenResponse, error)

	// client returns the client of a request without a client_id. nil: each request names it.
	client func(*tokenEndpoint, context.Context, oauth2.Parameters) (*client.Client, error)
}

// implicit is that of tokens from the authorization endpoint (RFC 6749 §4.2), which discovery lists
// too.
var implicit = grantType{rules: client.GrantType{
	Name: "implicit",
	Offered: func(c *client.Client) bool {
		return slices.ContainsFunc(c.ResponseTypes, func(t string) bool { return t != "code" })
	},
}}

// GrantTypes says which clients may use which.
func GrantTypes() client.GrantTypes {
	rules := make(client.GrantTypes, len(grantTypes))
	for i, g := range grantTypes {
		rules[i] = g.rules
	}
	return rules
}

func findGrantType(name string) (found grantType) {
	if i := slices.IndexFunc(grantTypes, func(g grantType) bool { return g.rules.Name == name }); i >= 0 {
		found = grantTypes[i]
	}
	return found
}

// check refuses a client that may not use a grant type, or any client if there is none.
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
