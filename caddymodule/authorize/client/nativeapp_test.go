package client_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// What is not safe for a native app either is refused when the configuration loads, and
// what is for native apps alone for other clients.
func TestRedirectURIsOfNativeAppsAlone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		uri           string
		native, other bool
	}{
		{"https://app.example.org/cb", true, true},
		{"http://localhost:3000/cb", true, true},
		{"http://127.0.0.1/cb", true, false},
		{"http://[::1]:8000/cb", true, false},
		{"com.example.app:/cb", true, false},
		{"com.example.app://host/cb", true, false},
		{"com.example.app:cb", false, false},
		{"com.example.app://user@host/cb", false, false},
		{"com.example.app:/cb#f", false, false},
		{"myapp:/cb", false, false},
		{"javascript:/cb", false, false},
		{"javascript:alert(1)", false, false},
		{"data.x:,y", false, false},
		{"http://127.0.0.1.example/cb", false, false},
		{"http://10.0.0.1/cb", false, false},
		{"http://127.0.0.1/cb#f", false, false},
		{"http://user@127.0.0.1/cb", false, false},
	}
	for _, tt := range tests {
		for native, want := range map[bool]bool{true: tt.native, false: tt.other} {
			client := client.Client{ID: "app", Native: native, RedirectURIs: []string{tt.uri}}
			if err := client.Complete(token.GrantTypes()); (err == nil) != want {
				t.Errorf("%s, native %t: %v", tt.uri, native, err)
			}
		}
	}
}
