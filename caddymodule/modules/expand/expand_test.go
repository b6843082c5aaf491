package expand_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// discardWriter is a response writer that discards the body.
type discardWriter struct {
	header http.Header
	status int
}

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) WriteHeader(status int)      { d.status = status }
func (d *discardWriter) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkCached measures a cached $expand from fhir_expand to the last byte. The number of source files that the request
// passes through is measured by go run ./house -passed caddymodule/modules/expand:BenchmarkCached in e2e.
func BenchmarkCached(b *testing.B) {
	g := gatewaytest.New(b, "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\tfhir_expand\n}\n")
	h := gatewaytest.FindHandler[*expand.Expand](b, g.Context)
	const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/languages&count=12"
	for range 3 {
		g.Get(path, "")
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost:8443"
	r.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		w := &discardWriter{header: make(http.Header)}
		if err := h.ServeHTTP(w, r, nil); err != nil || w.status != http.StatusOK || w.header.Get("Cache-Status") == "" {
			b.Fatal(err, w.status, w.header)
		}
	}
}
