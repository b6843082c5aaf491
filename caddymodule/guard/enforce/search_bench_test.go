package enforce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// fiftyObservations returns a search response with 50 Observations, 100 KB long.
func fiftyObservations() []byte {
	var b strings.Builder
	b.WriteString(`{"resourceType":"Bundle","id":"0f8a","meta":{"lastUpdated":"2024-05-01T10:00:00.000+00:00"},"type":"searchset","total":50,"link":[{"relation":"self","url":"http://backend.internal:8080/fhir/Observation?patient=a"}],"entry":[`)
	for n := range 50 {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"fullUrl":"http://backend.internal:8080/fhir/Observation/o%d","resource":{"resourceType":"Observation","id":"o%d","meta":{"versionId":"1","lastUpdated":"2024-05-01T10:00:00.000+00:00","source":"#x","profile":["http://hl7.org/fhir/us/core/StructureDefinition/us-core-observation-lab"]},"text":{"status":"generated","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\">%s</div>"},"status":"final","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory","display":"Laboratory"}],"text":"Laboratory"}],"code":{"coding":[{"system":"http://loinc.org","code":"6299-2","display":"Urea nitrogen [Mass/volume] in Blood"}],"text":"Urea Nitrogen"},"subject":{"reference":"Patient/a","display":"Amy Adams"},"encounter":{"reference":"Encounter/e1"},"effectiveDateTime":"2018-07-23T21:50:16-07:00","issued":"2018-07-23T21:50:16.529-07:00","performer":[{"reference":"Practitioner/alice","display":"Alice Alder"},{"reference":"Organization/org"}],"valueQuantity":{"value":%d.5,"unit":"mg/dL","system":"http://unitsofmeasure.org","code":"mg/dL"},"interpretation":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation","code":"N"}]}],"referenceRange":[{"low":{"value":7,"unit":"mg/dL"},"high":{"value":20,"unit":"mg/dL"},"text":"7-20 mg/dL"}]},"search":{"mode":"match"}}`,
			n, n, strings.Repeat("Urea nitrogen in blood is normal. ", 20), n)
	}
	b.WriteString("]}")
	return []byte(b.String())
}

// respondInPieces returns a handler that writes a fixed response in pieces of the size that a proxy copies.
func respondInPieces(body []byte) handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/fhir+json;charset=UTF-8")
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 32<<10)
			_, _ = w.Write(rest[:n])
			rest = rest[n:]
		}
		return nil
	}
}

// discardWriter is a client that discards the response.
type discardWriter struct {
	header http.Header
	n      int
}

func (d *discardWriter) Header() http.Header { return d.header }
func (d *discardWriter) WriteHeader(int)     {}
func (d *discardWriter) Write(p []byte) (int, error) {
	d.n += len(p)
	return len(p), nil
}

func BenchmarkSearch50(b *testing.B) {
	body := fiftyObservations()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		by     bool
	}{
		{"bound", access.Holder{Scope: "patient/*.rs", Patient: "a"}, true},
		{"bound by parameters", access.Holder{Scope: "patient/*.rs", Patient: "a"}, false},
		{"constrained", access.Holder{Scope: "patient/Observation.rs?category=http://terminology.hl7.org/CodeSystem/observation-category|laboratory", Patient: "a"}, true},
		{"whole", clinician, true},
	} {
		b.Run(tt.name, func(b *testing.B) {
			e := &enforce.Enforcer{
				Base: "/fhir/R4", BaseURL: "https://gateway.example/fhir/R4", TypeRules: access.NewTypeRules(nil), Sealing: prefixSealing{},
				SupportsCompartmentSearch: tt.by,
			}
			rights, next := access.New(tt.holder, e.TypeRules), respondInPieces(body)
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation?code=1&_count=50", nil)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				w := &discardWriter{header: http.Header{}}
				if err := e.Serve(w, r, next, enforce.Bearer{Rights: rights}); err != nil || w.n < 90_000 {
					b.Fatal(w.n, err)
				}
			}
		})
	}
}

// BenchmarkProxy50 sends the same response through a plain proxy, for comparison.
func BenchmarkProxy50(b *testing.B) {
	body := fiftyObservations()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = respondInPieces(body)(w, r) }))
	defer backend.Close()
	target, _ := url.Parse(backend.URL)
	proxy := httputil.NewSingleHostReverseProxy(target)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		w := &discardWriter{header: http.Header{}}
		if proxy.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation", nil)); w.n != len(body) {
			b.Fatal(w.n)
		}
	}
}
