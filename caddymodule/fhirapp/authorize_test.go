package fhirapp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Plain HTTP is refused, unless a proxy that trusted_proxies names says https.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	trusting := strings.Replace(gatewaytest.ExampleText(t, gatewaytest.ServersBlock, gatewaytest.ServersBlock+"\t\ttrusted_proxies static 192.0.2.0/24\n"), "https://localhost:8443 {", "http://localhost:8443 {", 1)
	g := newGateway(t, trusting)
	tests := []struct {
		name, from, proto string
		want              int
	}{
		{"plain", "192.0.2.1:1", "", http.StatusBadRequest},
		{"a trusted proxy says http", "192.0.2.1:1", "http", http.StatusBadRequest},
		{"a trusted proxy says https", "192.0.2.1:1", "https", http.StatusOK},
		{"somebody says https", "198.51.100.1:1", "https", http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/.well-known/openid-configuration", nil)
			r.RemoteAddr, r.Host = tt.from, "localhost:8443"
			r.Header.Set("X-Forwarded-Proto", tt.proto)
			w := httptest.NewRecorder()
			g.Server.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
		})
	}
}

func TestUnknownPathIs404(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	for _, path := range []string{"/index.html", "/oauth2/nothing", "/oauth2/authorize/", "/fhir/R4x"} {
		if r := g.Get(path, ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}
