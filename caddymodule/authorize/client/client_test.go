package client_test

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Scopes of other APIs may have any syntax that RFC 6749 §3.3 permits.
func TestCheckScope(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"demo.read", "reports/daily", "https://api.example.org/read", "patient", "launch/patient", "patient/*.rs", "user/Observation.read"} {
		if err := smart.CheckScope(scope); err != nil {
			t.Error(err)
		}
	}
	for _, scope := range []string{"", "a b", "a\"", "patient/", "patient/*.sr", "user/observation.rs", "system/*"} {
		if smart.CheckScope(scope) == nil {
			t.Errorf("%q passes", scope)
		}
	}
}

// A client that must send signed request objects in its requests must have keys.
func TestRequiredRequestObjectsAreSigned(t *testing.T) {
	t.Parallel()
	required := client.Client{
		ID: "signing", RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.RS256),
		RequestObjects: client.RequestObjects{Allowed: true, Required: true},
	}
	for name, change := range map[string]func(*client.Client){
		"without keys": func(c *client.Client) { c.JWKS = nil },
		"unsigned":     func(c *client.Client) { c.RequestObjects.Algorithm = client.AlgorithmNone },
	} {
		c := required
		change(&c)
		if err := c.Complete(nil); err == nil || !strings.Contains(err.Error(), "must be signed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
