package authorization

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// Every path that is served is measured under a name of its own.
func TestEndpointsAreMeasured(t *testing.T) {
	for _, name := range authorize.EndpointNames {
		if endpoints[name] == nil {
			t.Errorf("%s is not measured", name)
		}
	}
	for path, want := range map[string]string{
		"/oauth2/token": "token", "/oauth2/login/hospital": "login", "/oauth2/callback/hospital": "callback",
		"/.well-known/jwks.json": "jwks.json", "/fhir/R4/.well-known/smart-configuration": "smart-configuration",
	} {
		if got := authorize.EndpointName(path); got != want {
			t.Errorf("%s is measured as %q", path, got)
		}
	}
}
