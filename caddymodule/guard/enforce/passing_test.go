package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
)

// TestReadersWriteNothing checks that who may read everything changes nothing.
func TestReadersWriteNothing(t *testing.T) {
	t.Parallel()
	const changed = `{"resourceType":"Observation","id":"b1","status":"amended","subject":{"reference":"Patient/b"}}`
	for _, scope := range []string{"system/*.rs", "system/Observation.rs"} {
		g := newGateway(t, records...)
		g.server.Seen = func(r *http.Request) { t.Errorf("%s: %s %s was asked for", scope, r.Method, r.URL) }
		for _, request := range []string{"DELETE Observation/b1", "PUT Observation/b1", "POST Observation", "PATCH Observation/b1", "DELETE Observation?_id=b1", "PUT Observation?_id=b1"} {
			got := g.written(writing{holder: access.Holder{Scope: scope}, request: request, body: changed})
			if got.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s: status %d", scope, request, got.StatusCode)
			}
		}
	}
}

// TestFormIsRead checks that a search by POST does not pass before its form is read.
func TestFormIsRead(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation/_search", strings.NewReader("_include=Observation:subject"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response := g.send(access.Holder{Scope: "system/Observation.rs"}, r)
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || strings.Contains(text, `"resourceType":"Patient"`) {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}

// TestOperationOff checks that nobody calls an operation that a site has taken away.
func TestOperationOff(t *testing.T) {
	t.Parallel()
	off, err := operation.ParseOperation("$meta", "off")
	if err != nil {
		t.Fatal(err)
	}
	g := operating(t, off)
	for _, h := range []access.Holder{clinician, patientA} {
		if got := g.get(h, "Observation/a1/$meta"); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", h.Scope, got.StatusCode)
		}
	}
}
