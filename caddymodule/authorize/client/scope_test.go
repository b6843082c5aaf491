package client_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Scopes of other APIs may look like anything that RFC 6749 §3.3 allows.
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
