package client_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

func TestRegisteredRedirectURI(t *testing.T) {
	t.Parallel()
	tests := []struct {
		uri string
		ok  bool
	}{
		{"https://app.example.org/callback", true},
		{"https://app.example.org/callback?a=b&c=d", true},
		{"https://app.example.org:8443/", true},
		{"http://localhost", true},
		{"http://localhost:3000/callback", true},
		{"https://xn--bcher-kva.example/cb", true},
		{"http://app.example.org/callback", false},
		{"http://127.0.0.1/callback", false},
		{"http://localhost.evil.example/callback", false},
		{"https://app.example.org/callback#", false},
		{"https://good@evil.example/", false},
		{"https://app.example.org\\@evil.example/", false},
		{"https://app.example.org/a b", false},
		{"https://app.example.org/\x7f", false},
		{"https://bücher.example/cb", false},
		{"https:app.example.org", false},
		{"https://*.example.org/cb", false},
		{"https://[2001:db8::1]:8443/cb", true},
		{"https://my_app.example.org/cb", true},
		{"https://app.example.org;sandbox/cb", false},
		{"https://app.example.org,evil.example/cb", false},
		{"https://app.example.org'/cb", false},
		{"https://app.example.org%3b/cb", false},
		{"https://app.example.org:/cb", false},
		{"https://app.example.org:999999/cb", false},
		{"https://app.example.org:65536/cb", false},
		{"https://app.example.org:65535/cb", true},
		{"http://localhost:99999/cb", false},
		{"https://app.example.org/{env.X}", false},
		{"https://app.example.org/\"", false},
		{"https:///callback", false},
		{"/callback", false},
		{"javascript:alert(1)", false},
		{"data:text/html,x", false},
		{"myapp://callback", false},
		{"", false},
	}
	for _, tt := range tests {
		if err := client.CheckRedirectURI(tt.uri); (err == nil) != tt.ok {
			t.Errorf("CheckRedirectURI(%q) = %v", tt.uri, err)
		}
	}
}

// The configuration rejects redirect URIs that are insecure even for native apps. For other clients, it also rejects those that
// only native apps may use.
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
