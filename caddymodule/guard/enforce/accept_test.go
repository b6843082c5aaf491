package enforce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAccept checks that what was judged is JSON, or is refused before anything is done.
func TestAccept(t *testing.T) {
	t.Parallel()
	const xml = "application/fhir+xml"
	for _, tt := range []struct {
		name, request, accept, body string
		status                      int
	}{
		{"nothing", "GET Observation/a1", "", "", 200},
		{"what cannot be read", "GET Observation/a1", ";", "", 200},
		{"anything", "GET Observation/a1", "*/*", "", 200},
		{"any application", "GET Observation/a1", "application/*;q=0.1", "", 200},
		{"FHIR JSON", "GET Observation/a1", "application/fhir+json; fhirVersion=4.0", "", 200},
		{"JSON", "GET Observation/a1", "application/json", "", 200},
		{"HAPI's client", "GET Observation/a1", "application/fhir+xml;q=1.0, application/fhir+json;q=1.0, application/xml+fhir;q=0.9", "", 200},
		{"XML", "GET Observation/a1", xml, "", 406},
		{"XML, and JSON never", "GET Observation/a1", xml + ", application/fhir+json;q=0", "", 406},
		{"Turtle", "GET Observation/a1", "text/turtle", "", 406},
		{"JSON by parameter", "GET Observation/a1?_format=application/fhir%2Bjson", xml, "", 200},
		{"XML by parameter", "GET Observation/a1?_format=xml", "application/fhir+json", "", 406},
		{"XML by a form", "POST Observation/_search", "*/*", "_format=xml", 406},
		{"a version", "GET Observation/a1/_history/1", xml, "", 406},
		{"a history", "GET Observation/a1/_history", xml, "", 406},
		{"a search", "GET Observation", xml, "", 406},
		{"an operation", "GET Patient/a/$everything", xml, "", 406},
		{"a write", "POST Observation", xml, observation("", "Patient/a", ""), 406},
		{"a deletion", "DELETE Observation/a1", xml, "", 406},
		{"a batch", "POST ", xml, fmt.Sprintf(batchOf, "batch", ""), 406},
		{"another's record", "GET Observation/b1", xml, "", 406},
		{"none's record", "GET Observation/none", xml, "", 406},
		{"a Binary in XML", "GET Binary/a1", xml, "", 406},
		{"a Binary in XML by parameter", "GET Binary/a1?_format=xml", "", "", 406},
		{"a Binary as it is, in XML", "GET Binary/a1", "text/xml", "", 200},
		{"Binaries", "GET Binary", "application/pdf", "", 406},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, writable...)
			g.server.Seen = func(r *http.Request) {
				if tt.status == 406 {
					t.Errorf("%s %s reaches the server", r.Method, r.URL)
				}
			}
			method, target, _ := strings.Cut(tt.request, " ")
			r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(tt.body))
			r.Header.Set("Accept", tt.accept)
			r.Header.Set("Content-Type", "application/fhir+json")
			if strings.HasSuffix(target, "_search") {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			if got := g.send(patientA, r).StatusCode; got != tt.status {
				t.Errorf("status %d", got)
			}
		})
	}
}

// TestAcceptOfPage checks a link to a page.
func TestAcceptOfPage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	next := g.nextOf(g.get(patientA, "Observation?_count=1"))
	r := httptest.NewRequest(http.MethodGet, strings.TrimPrefix(next, "https://gateway.example"), nil)
	r.Header.Set("Accept", "application/fhir+xml")
	if got := g.send(patientA, r).StatusCode; got != 406 || next == "" {
		t.Errorf("%s: %d", next, got)
	}
}
