package token

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// A grant type of which nothing is said, or not who may use it, is refused.
func TestEmptyGrantType(t *testing.T) {
	t.Parallel()
	c := &client.Client{ResponseTypes: client.ResponseTypes, GrantTypes: []string{"", "new"}}
	for name, g := range map[string]grantType{
		"nothing":           {},
		"a name alone":      {rules: client.GrantType{Name: "new"}},
		"no rule who may":   {rules: client.GrantType{Name: "new"}, exchange: (*tokenEndpoint).exchangeCode},
		"nobody to give it": {rules: client.GrantType{Name: "new", Allows: func(*client.Client) bool { return true }}},
		"one that is not":   (&tokenEndpoint{grantTypes: grantTypes}).grantType(oauth2.Parameters{"grant_type": {"password"}}),
	} {
		if g.check(c, grantTypes) == nil {
			t.Errorf("%s: allowed", name)
		}
	}
}
