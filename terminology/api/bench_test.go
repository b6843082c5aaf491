package api_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// discard is a response writer that discards the body.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header { return d.header }

func (*discard) WriteHeader(int) {}

func (*discard) Write(p []byte) (int, error) { return len(p), nil }

// benchmarkExpand measures repetitions of the same $expand request.
func benchmarkExpand(b *testing.B, pairs ...string) {
	h := &api.Handler{Library: terminologytest.Core(b)}
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?"+terminologytest.Query(pairs...), nil)
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Expand(w, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExpandAdministrativeGender(b *testing.B) { benchmarkExpand(b, "url", gender) }

func BenchmarkExpandActCodeFiltered(b *testing.B) {
	benchmarkExpand(b, "url", "http://terminology.hl7.org/ValueSet/v3-ActCode", "filter", "med ins", "count", "20")
}

func BenchmarkExpandActCodeOneLetter(b *testing.B) {
	benchmarkExpand(b, "url", "http://terminology.hl7.org/ValueSet/v3-ActCode", "filter", "m", "count", "20")
}

func BenchmarkExpandActCodeUnpaged(b *testing.B) {
	benchmarkExpand(b, "url", "http://terminology.hl7.org/ValueSet/v3-ActCode")
}

// BenchmarkLoadCore measures loading the built-in definitions and their heap memory.
func BenchmarkLoadCore(b *testing.B) {
	before := heap()
	var l *terminology.Library
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if l, err = terminology.Load(b.Context(), definitions.Options{Core: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-before), "heap-bytes")
	runtime.KeepAlive(l)
}
