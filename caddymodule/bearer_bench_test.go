package caddymodule

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkBearer is the whole gateway answering a small expansion from memory,
// with the guard (and a token that it has seen before) and without.
func BenchmarkBearer(b *testing.B) {
	g := exampleGateway(b, nil)
	token := g.token()
	open := newGateway(b, exampleWith(b, "\t\tfhir_bearer\n", ""))
	for _, bench := range []struct {
		name   string
		server http.Handler
	}{{"guarded", g.Server}, {"open", open.Server}} {
		b.Run(bench.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", nil)
			r.TLS, r.Host = &tls.ConnectionState{ServerName: "localhost"}, "localhost:8443"
			header := http.Header{
				"Authorization": {"Bearer " + token}, "Accept": {"application/fhir+json"}, "User-Agent": {"a browser"},
				"Accept-Language": {"en"}, "Origin": {"https://app.example.org"}, "Referer": {"https://app.example.org/"},
			}
			b.ReportAllocs()
			for b.Loop() {
				request := r.Clone(r.Context())
				request.Header = header.Clone()
				w := httptest.NewRecorder()
				bench.server.ServeHTTP(w, request)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
