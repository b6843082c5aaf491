package authorize_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

func corsServer(t *testing.T) *authorizetest.Browser {
	return authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Clients = append(c.Clients, client.Client{ID: "ports", RedirectURIs: []string{"https://Port.example:443/cb", "https://port.example:8443/cb"}})
	}))
}

var clientEndpoints = map[string]string{
	"/oauth2/par":   http.MethodPost,
	"/oauth2/token": http.MethodPost, "/oauth2/revoke": http.MethodPost, "/oauth2/introspect": http.MethodPost, "/oauth2/userinfo": http.MethodGet,
}

var documents = []string{
	"/.well-known/openid-configuration", "/.well-known/oauth-authorization-server", "/.well-known/jwks.json", "/fhir/R4/.well-known/smart-configuration",
	"/.well-known/oauth-protected-resource/fhir/R4",
}

// Only scripts at client origins may call the client endpoints. All requests of this test fail, because scripts must also be
// able to read errors.
func TestCORSOfClients(t *testing.T) {
	t.Parallel()
	b := corsServer(t)
	tests := []struct {
		origin string
		want   bool
	}{
		{"https://app.example.org", true},
		{"http://localhost:3000", true},
		{"https://port.example", true},
		{"https://port.example:8443", true},
		{"http://localhost:3001", false},
		{"http://app.example.org", false},
		{"https://app.example.org.attacker.example", false},
		{"https://attacker.example", false},
		{"null", false},
		{"*", false},
	}
	for path, method := range clientEndpoints {
		for _, tt := range tests {
			want := ""
			if tt.want {
				want = tt.origin
			}
			answer := authorizetest.SendFrom(b, tt.origin, method, path, url.Values{})
			if got := answer.Header.Get("Access-Control-Allow-Origin"); got != want || answer.StatusCode < 400 {
				t.Errorf("%s from %s: %d, allowed %q", path, tt.origin, answer.StatusCode, got)
			}
			if vary := answer.Header.Values("Vary"); !slices.Contains(vary, "Origin") {
				t.Errorf("%s from %s: Vary %q", path, tt.origin, vary)
			}
			preflight := authorizetest.Preflight(b, tt.origin, method, path)
			if got := preflight.Header.Get("Access-Control-Allow-Origin"); got != want || preflight.StatusCode != http.StatusNoContent {
				t.Errorf("preflight for %s from %s: %d, allowed %q", path, tt.origin, preflight.StatusCode, got)
			}
			if text := authorizetest.Body(t, preflight); text != "" || preflight.Header.Get("Allow") != "" {
				t.Errorf("preflight for %s went on to the endpoint: %s", path, text)
			}
			if answer.Header.Get("Access-Control-Allow-Credentials")+preflight.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: credentials allowed", path)
			}
		}
	}
}

// A script of a public client can redeem a code (Inferno's cors_token_exchange).
func TestCORSTokenExchange(t *testing.T) {
	t.Parallel()
	b := corsServer(t)
	code := b.Code(nil)
	preflight := authorizetest.Preflight(b, "https://app.example.org", http.MethodPost, "/oauth2/token").Header
	if preflight.Get("Access-Control-Allow-Methods") != "POST" || preflight.Get("Access-Control-Max-Age") == "" ||
		!strings.Contains(preflight.Get("Access-Control-Allow-Headers"), "authorization") {
		t.Errorf("preflight %v", preflight)
	}
	r := authorizetest.SendFrom(b, "https://app.example.org", http.MethodPost, "/oauth2/token", authorizetest.CodeForm(code, nil))
	if r.StatusCode != http.StatusOK || r.Header.Get("Access-Control-Allow-Origin") != "https://app.example.org" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}

// Inferno's cors_well_known: discovery documents allow CORS from all origins.
func TestCORSOfDocuments(t *testing.T) {
	t.Parallel()
	b := corsServer(t)
	for _, path := range documents {
		for name, r := range map[string]*http.Response{
			"answer":    authorizetest.SendFrom(b, "https://anybody.example", http.MethodGet, path, nil),
			"error":     authorizetest.SendFrom(b, "https://anybody.example", http.MethodDelete, path, nil),
			"preflight": authorizetest.Preflight(b, "https://anybody.example", http.MethodGet, path, "mcp-protocol-version"),
		} {
			if got := r.Header["Access-Control-Allow-Origin"]; !slices.Equal(got, []string{"*"}) || r.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s of %s: %v", name, path, r.Header)
			}
		}
	}
}

// HTML pages have no CORS headers.
func TestNoCORSOfPages(t *testing.T) {
	t.Parallel()
	b := corsServer(t)
	for _, path := range []string{"/oauth2/authorize", "/oauth2/login", "/oauth2/logout"} {
		for name, r := range map[string]*http.Response{
			"page":      authorizetest.SendFrom(b, "https://app.example.org", http.MethodGet, path, nil),
			"preflight": authorizetest.Preflight(b, "https://app.example.org", http.MethodGet, path),
		} {
			for header := range r.Header {
				if strings.HasPrefix(header, "Access-Control-") {
					t.Errorf("%s of %s: %s", name, path, header)
				}
			}
		}
	}
}

// The discovery documents are consistent with each other and ignore query parameters (RFC 8414 §3, OpenID
// Connect Discovery §4, SMART App Launch 2.2, Conformance). SMART has no value for the implicit grant.
func TestDocumentsAgree(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	values := map[string]string{}
	for _, path := range documents {
		if path == "/.well-known/jwks.json" {
			continue
		}
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", "text/html, application/fhir+xml;q=0.9")
		response := b.Send(r)
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, response.StatusCode, response.Header.Get("Content-Type"))
		}
		for name, value := range authorizetest.Decode[map[string]any](t, response) {
			text := strings.Replace(fmt.Sprint(value), " implicit", "", 1)
			if earlier, ok := values[name]; ok && earlier != text {
				t.Errorf("%s: %s is %s, and %s elsewhere", path, name, text, earlier)
			}
			values[name] = text
		}
	}
	if len(values) < 20 {
		t.Errorf("the documents contain only %d values", len(values))
	}
}
