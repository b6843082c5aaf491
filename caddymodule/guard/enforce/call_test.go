package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

// TestBody is over bodies that can be judged, and those that cannot.
func TestBody(t *testing.T) {
	t.Parallel()
	const own = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name, target, media, encoding, body string
		status                              int
	}{
		{"FHIR JSON", "Observation", "application/fhir+json", "", own, 201},
		{"JSON", "Observation", "application/json;charset=UTF-8", "", own, 201},
		{"not compressed", "Observation", "application/fhir+json", "identity", own, 201},
		{"compressed", "Observation", "application/fhir+json", "gzip", own, 415},
		{"XML", "Observation", "application/fhir+xml", "", own, 415},
		{"no type", "Observation", "", "", own, 415},
		{"another charset", "Observation", "application/fhir+json; charset=utf-16", "", own, 415},
		{"as long as may be", "Observation", "application/fhir+json", "", own + strings.Repeat(" ", 200-len(own)), 201},
		{"too long", "Observation", "application/fhir+json", "", own + strings.Repeat(" ", 201-len(own)), 413},
		{"a form", "Observation/_search", "application/x-www-form-urlencoded", "", "_id=a1", 200},
		{"a form that is said to be JSON", "Observation/_search", "application/fhir+json", "", "_id=a1", 415},
		{"a parameter that is refused in a form", "Observation/_search", "application/x-www-form-urlencoded", "", "_filter=x", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.Limits = server.Limits{Body: 200}
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4/"+tt.target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.media)
			r.Header.Set("Content-Encoding", tt.encoding)
			if got := g.send(patientA, r); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}

// TestBase checks that nothing is asked of the FHIR server for paths that are not below the base.
func TestBase(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.server.Seen = func(r *http.Request) { t.Errorf("%s was asked for", r.URL.Path) }
	for _, path := range []string{"/fhir/R40/Observation/a1", "/fhir/R4Observation/a1", "/fhir", "/Observation/a1"} {
		got := g.send(access.Holder{Scope: "system/*.rs"}, httptest.NewRequest(http.MethodGet, path, nil))
		if got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.StatusCode)
		}
	}
}

// What is wrong with the body of a search is told as of a search.
func TestSearchBody(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation/_search", strings.NewReader("code=x"))
	r.Header.Set("Content-Type", "application/fhir+json")
	response := g.send(patientA, r)
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(text), "application/x-www-form-urlencoded") {
		t.Errorf("%d %s", response.StatusCode, text)
	}
}
