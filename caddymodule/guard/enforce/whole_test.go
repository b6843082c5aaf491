package enforce_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestWholeIsRefused is over batches of somebody who may do everything, which the FHIR server must not get as they are.
func TestWholeIsRefused(t *testing.T) {
	t.Parallel()
	own := strings.Replace(records[3], `"id":"a1"`, `"id":"a2"`, 1)
	twice := `{"fullUrl":"urn:uuid:1","request":{"method":"GET","url":"Observation/a1"}}`
	for _, tt := range []struct{ name, entries string }{
		{"another id than in the path", sending("PUT", "Observation/a1", own)},
		{"a patch of another type", sending("PATCH", "Observation/a1", `{"resourceType":"Binary","contentType":"text/plain","data":"W10="}`)},
		{"a fullUrl twice", twice + "," + twice},
		{"a search, whose links are to be sealed", request("GET", "Observation?_count=1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.server.Seen = func(r *http.Request) {
				if r.Method != http.MethodGet {
					t.Errorf("%s %s was asked for", r.Method, r.URL)
				}
			}
			response := g.written(writing{holder: clinician, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + tt.entries + `]}`})
			if text := bodyOf(t, response); strings.Contains(text, "_getpages") {
				t.Errorf("status %d: %s", response.StatusCode, text)
			}
		})
	}
}

// TestEntriesForget checks that what was found for one entry does not count for the next.
func TestEntriesForget(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	entries := strings.Join([]string{request("GET", "Binary/a1"), request("DELETE", "Observation/a1"), request("GET", "Binary/a1")}, ",")
	response := g.written(writing{holder: patientA, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + entries + `]}`})
	text := bodyOf(t, response)
	if strings.Count(text, `"status":"200`) != 1 || strings.Count(text, `"status":"404`) != 1 {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}
