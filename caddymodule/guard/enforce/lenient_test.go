package enforce_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// TestLenientHandling checks that only Prefer: handling=lenient has unknown parameters ignored, that the answer says so, and
// that no parameter is ignored that could reveal more, or that selects what is written.
func TestLenientHandling(t *testing.T) {
	t.Parallel()
	whole := access.Holder{Scope: "user/Observation.cruds user/Patient.rs", User: clinician.User}
	for _, tt := range []struct {
		name, request, prefer string
		holder                access.Holder
		status, matches       int
		self                  string
	}{
		{"no preference", "GET Observation?_totalMethod=x", "", patientA, 400, 0, ""},
		{"strict", "GET Observation?_totalMethod=x", "handling=strict", patientA, 400, 0, ""},
		{"the first preference counts", "GET Observation?_totalMethod=x", "handling=strict, handling=lenient", patientA, 400, 0, ""},
		{"lenient", "GET Observation?_totalMethod=x&status=final", "handling=lenient", patientA, 200, 2, "Observation?status=final"},
		{"lenient, among others", "GET Observation?mine=x", `return=minimal, Handling = "lenient"; a=b`, patientA, 200, 2, "Observation"},
		{"lenient, with a modifier", "GET Observation?mine:exact=x", "handling=lenient", patientA, 200, 2, "Observation"},
		{"lenient, several types", "GET ?_type=Observation,Patient&mine=x", "handling=lenient", patientA, 200, 3, "?_type=Observation%2CPatient"},
		{"lenient, by form", "POST Observation/_search?mine=x&status=final", "handling=lenient", patientA, 200, 2, "Observation?status=final"},
		{"lenient, whole type", "GET Observation?mine=x", "handling=lenient", whole, 200, 3, "Observation"},
		{"lenient, an oracle", "GET Observation?_filter=x", "handling=lenient", patientA, 403, 0, ""},
		{"lenient, a server's page", "GET Observation?_getpages=x", "handling=lenient", patientA, 403, 0, ""},
		{"lenient, an unknown order", "GET Observation?_sort=mine", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, an unknown chain", "GET Observation?subject:Patient.mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional delete", "DELETE Observation?_id=a1&mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional update", "PUT Observation?_id=a1&mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional delete of a whole type", "DELETE Observation?_id=a1&mine=x", "handling=lenient", whole, 400, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			before := len(g.server.All())
			method, target, _ := strings.Cut(tt.request, " ")
			body := ""
			if path, form, ok := strings.Cut(target, "?"); ok && method == http.MethodPost {
				target, body = path, form
			} else if method == http.MethodPut {
				body = records[3]
			}
			r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(body))
			r.Header.Set("Content-Type", map[bool]string{true: "application/x-www-form-urlencoded", false: "application/fhir+json"}[method == http.MethodPost])
			if tt.prefer != "" {
				r.Header.Set("Prefer", tt.prefer)
			}
			response := g.send(tt.holder, r)
			if response.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", response.StatusCode, tt.status, bodyOf(t, response))
			}
			if tt.status != http.StatusOK {
				if len(g.server.All()) != before || g.server.Get("Observation/a1") == "" {
					t.Error("something was written")
				}
				return
			}
			var b bundle
			if err := json.NewDecoder(response.Body).Decode(&b); err != nil || len(b.Entry) != tt.matches+1 {
				t.Fatalf("%v, %d entries", err, len(b.Entry))
			}
			if last := b.Entry[tt.matches]; last.Resource.ResourceType != "OperationOutcome" || last.Search.Mode != "outcome" {
				t.Errorf("no outcome: %+v", last)
			}
			if self := strings.TrimPrefix(strings.TrimPrefix(b.Link[0].URL, g.BaseURL), "/"); self != tt.self {
				t.Errorf("self is %s", self)
			}
		})
	}
	// The pages that follow have no such header.
	for _, rule := range []string{"", "deny resource.id == 'none'"} {
		g := newGateway(t, records...)
		if rule != "" {
			g.withRules(rule)
		}
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation?mine=x&_count=1&_sort=_id", nil)
		r.Header.Set("Prefer", "handling=lenient")
		var b bundle
		if err := json.NewDecoder(g.send(patientA, r).Body).Decode(&b); err != nil || b.next() == "" {
			t.Fatalf("%v, %+v", err, b)
		}
		if got := g.read(patientA, b.next(), 1); len(got) != 1 || got[0] != "a2" {
			t.Errorf("the rest is %v", got)
		}
	}
}

// TestIfModifiedSince checks that reads heed If-Modified-Since only for what is covered (RFC 9110 §13.1.3).
func TestIfModifiedSince(t *testing.T) {
	t.Parallel()
	const updated = "Wed, 01 May 2024 10:00:00 GMT"
	timed := func(id, subject string) string {
		return `{"resourceType":"Observation","id":"` + id + `","meta":{"lastUpdated":"2024-05-01T12:00:00.999+02:00"},"status":"final","subject":{"reference":"Patient/` + subject + `"}}`
	}
	for _, tt := range []struct {
		name, method, target string
		since, noneMatch     string
		status               int
	}{
		{"the same second", "GET", "Observation/t", updated, "", 304},
		{"later", "GET", "Observation/t", "Wed, 01 May 2024 10:00:01 GMT", "", 304},
		{"earlier", "GET", "Observation/t", "Wed, 01 May 2024 09:59:59 GMT", "", 200},
		{"by HEAD", "HEAD", "Observation/t", updated, "", 304},
		{"no date", "GET", "Observation/t", "yesterday", "", 200},
		{"If-None-Match comes first", "GET", "Observation/t", updated, `W/"7"`, 200},
		{"If-None-Match matches", "GET", "Observation/t", "Wed, 01 May 2024 09:59:59 GMT", `W/"1"`, 304},
		{"without a time", "GET", "Observation/a1", updated, "", 200},
		{"not covered", "GET", "Observation/u", updated, "", 404},
		{"not there", "GET", "Observation/none", updated, "", 404},
		{"a search", "GET", "Observation?_id=t", updated, "", 200},
		{"Last-Modified", "GET", "Observation/dated", "Wed, 01 May 2024 10:00:00 GMT", "", 200},
		{"Last-Modified, later", "GET", "Observation/dated", "Fri, 31 May 2024 10:00:00 GMT", "", 304},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, append([]string{timed("t", "a"), timed("u", "b")}, records...)...)
			g.server.Answers = map[string]http.HandlerFunc{"Observation/dated": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Last-Modified", "Fri, 31 May 2024 10:00:00 GMT")
				answering(timed("dated", "a"))(w, r)
			}}
			r := httptest.NewRequest(tt.method, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("If-Modified-Since", tt.since)
			if tt.noneMatch != "" {
				r.Header.Set("If-None-Match", tt.noneMatch)
			}
			if got := g.send(patientA, r); got.StatusCode != tt.status || got.StatusCode == 304 && bodyOf(t, got) != "" {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}
