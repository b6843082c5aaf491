package fhirapp

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkBearer is $expand answered from memory, with the guard (and a token that it has seen before) and without,
// beside Caddy's respond of as many bytes. With scopes off, only the token is checked. "Next" is the same answer by a handler behind the guard that is not ours.
func BenchmarkBearer(b *testing.B) {
	issuer := newTrustedIssuer(b)
	site := func(routes string) *gateway {
		return newGateway(b, "{\n\tadmin off\n\tauto_https off\n}\n\nhttp://localhost:8443 {\n\troute {\n"+routes+"\n\t}\n}\n")
	}
	const path = "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/languages&count=12"
	guard := "\t\tfhir_bearer {\n\t\t\ttrust " + issuer.url + " fhir\n\t\t}\n"
	open := site("\t\tfhir_expand")
	answer, err := io.ReadAll(open.Get(path, "").Body)
	if err != nil {
		b.Fatal(err)
	}
	respond := "\t\theader Content-Type application/fhir+json\n\t\trespond `" + string(answer) + "`"
	for _, bench := range []struct {
		name   string
		server http.Handler
	}{
		{"respond", site(respond).Server},
		{"open", open.Server},
		{"guarded", site(guard + "\t\tfhir_expand").Server},
		{"guarded, scopes off", site(strings.Replace(guard, "{", "{\n\t\t\tscopes off", 1) + "\t\tfhir_expand").Server},
		{"guarded, next", site(guard + respond).Server},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = "localhost:8443"
			header := http.Header{
				"Authorization": {"Bearer " + issuer.Token(b, "system/*.rs")}, "User-Agent": {"an app"}, "Accept-Encoding": {"gzip"},
			}
			b.ReportAllocs()
			for b.Loop() {
				request := r.Clone(r.Context())
				maps.Copy(request.Header, header)
				w := &nobody{header: make(http.Header)}
				bench.server.ServeHTTP(w, request)
				if w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
		})
	}
}
