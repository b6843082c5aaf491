package token

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// grantTypes are all that there are. A new one is a file of its own, and a line here: the token
// endpoint, discovery, the configuration and registration of clients and the metrics read this.
var grantTypes = []grantType{authorizationCode, implicit, clientCredentials, refreshToken}

// implicit is that of tokens from the authorization endpoint (RFC 6749 §4.2), which discovery lists
// too.
var implicit = grantType{rules: client.GrantType{
	Name: "implicit",
	Offered: func(c *client.Client) bool {
		return slices.ContainsFunc(c.ResponseTypes, func(t string) bool { return t != "code" })
	},
}}

// GrantTypes says which clients may use which.
func GrantTypes() client.GrantTypes { return rulesOf(grantTypes) }
