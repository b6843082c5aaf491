package client_test

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// A client that must sign request objects has keys.
func TestRequiredRequestObjectsAreSigned(t *testing.T) {
	t.Parallel()
	required := client.Client{
		ID: "signing", RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.RS256),
		RequestObjects: client.RequestObjects{Allowed: true, Required: true},
	}
	for name, change := range map[string]func(*client.Client){
		"without keys": func(c *client.Client) { c.JWKS = nil },
		"unsigned":     func(c *client.Client) { c.RequestObjects.Algorithm = client.Unsigned },
	} {
		c := required
		change(&c)
		if err := c.Complete(nil); err == nil || !strings.Contains(err.Error(), "must be signed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
