package fhirapp

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// BenchmarkTyped measures searches that miss the cache, as while a user types.
func BenchmarkTyped(b *testing.B) {
	for _, ttl := range []string{"off", "1h"} {
		g := newGateway(b, frontCaddyfile("ttl "+ttl, gatewaytest.UnreachableBackend))
		b.Run("ttl "+ttl, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/languages&count=10&filter=g%d", n), nil)
				r.Host = "localhost:8443"
				g.Server.ServeHTTP(&discardWriter{header: make(http.Header)}, r)
			}
		})
	}
}

// discardWriter is a response writer that discards the body with minimal overhead.
type discardWriter struct {
	header http.Header
	status int
}

func (n *discardWriter) Header() http.Header { return n.header }

func (n *discardWriter) WriteHeader(status int) { n.status = status }

func (n *discardWriter) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkHit measures the overhead of fhir_expand for a cached response, compared with Caddy's respond.
func BenchmarkHit(b *testing.B) {
	const site = "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\t"
	respond := newGateway(b, site+"respond "+strings.Repeat("x", 1900)+"\n}\n")
	hit := newGateway(b, frontCaddyfile("ttl 1h", gatewaytest.UnreachableBackend))
	guarded := exampleGateway(b, nil)
	const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/languages&count=12"
	token := guarded.Token()
	for name, tt := range map[string]struct {
		g      *gateway
		path   string
		header http.Header
	}{
		"respond":        {respond, "/", nil},
		"hit":            {hit, path, nil},
		"hit with token": {guarded, path, http.Header{"Authorization": {"Bearer " + token}}},
		"304":            {hit, path, http.Header{"If-None-Match": {hitTag(hit, path)}}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, tt.path, nil)
				r.TLS, r.Host = &tls.ConnectionState{ServerName: "localhost"}, "localhost:8443"
				maps.Copy(r.Header, tt.header)
				tt.g.Server.ServeHTTP(&discardWriter{header: make(http.Header)}, r)
			}
		})
	}
}

// hitTag returns the entity tag of a cached response.
func hitTag(g *gateway, path string) (tag string) {
	for range 3 {
		tag = g.Get(path, "").Header.Get("ETag")
	}
	return tag
}
