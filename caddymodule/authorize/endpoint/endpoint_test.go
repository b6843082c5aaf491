package endpoint

import (
	"slices"
	"testing"
)

// Every path that is served is measured under a name of its own.
func TestEndpointsAreMeasured(t *testing.T) {
	for path, want := range map[string]string{
		"/oauth2/token": "token", "/oauth2/login/hospital": "login", "/oauth2/callback/hospital": "callback",
		"/.well-known/jwks.json": "jwks.json", "/fhir/R4/.well-known/smart-configuration": "smart-configuration",
	} {
		if got := Name(path); got != want || !slices.Contains(Names(), got) {
			t.Errorf("%s is measured as %q", path, got)
		}
	}
}
