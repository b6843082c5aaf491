package enforce_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// moved is an observation that was patient b's first, then a's, then b's, then a's again.
func moved(g *gateway) {
	for _, patient := range []string{"b", "a", "b", "a"} {
		g.server.Put(`{"resourceType":"Observation","id":"moved","status":"final","subject":{"reference":"Patient/` + patient + `"}}`)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   string // the patients of the versions, or the status
	}{
		{"one's own versions", patientA, "Observation/moved/_history", "aa"},
		{"another's versions", access.Holder{Scope: "patient/*.r", Patient: "b"}, "Observation/moved/_history", "bb"},
		{"nobody's", access.Holder{Scope: "patient/*.r", Patient: "c"}, "Observation/moved/_history", "404"},
		{"what is not there", patientA, "Observation/none/_history", "404"},
		{"what is another's", patientA, "Observation/b1/_history", "404"},
		{"without all elements", patientA, "Observation/moved/_history?_elements=subject&_summary=count", "aa"},
		{"pages", patientA, "Observation/moved/_history?_count=1", "aa"},
		{"pages, the first of which is another's", access.Holder{Scope: "patient/*.r", Patient: "b"}, "Observation/moved/_history?_count=1", "404"},
		{"a page of the server's", patientA, "Observation/moved/_history?_getpages=0", "403"},
		{"a whole grant", clinician, "Observation/moved/_history", "abab"},
		{"a whole grant, pages", clinician, "Observation/moved/_history?_count=1", "abab"},
		{"to search is not to read", access.Holder{Scope: "patient/*.s", Patient: "a"}, "Observation/moved/_history", "403"},
		{"of a type", patientA, "Observation/_history", "403"},
		{"of all types", patientA, "_history", "403"},
		{"of a type, within a constraint", access.Holder{Scope: "user/Observation.rs?status=final", User: clinician.User}, "Observation/_history", "403"},
		{"of all types, for one", access.Holder{Scope: "user/Observation.rs", User: clinician.User}, "_history", "403"},
		{"of another type", access.Holder{Scope: "user/Observation.rs", User: clinician.User}, "Encounter/_history", "403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			moved(g)
			if got := g.patients(tt.holder, tt.target); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// patients are those of the versions on all pages of a history, or the status of a refusal.
func (g *gateway) patients(h access.Holder, target string) string {
	g.t.Helper()
	all := ""
	for target != "" {
		response := g.get(h, target)
		if response.StatusCode != http.StatusOK {
			return response.Status[:3]
		}
		var b struct {
			bundle
			Entry []struct {
				Resource struct{ Subject struct{ Reference string } }
				Request  struct{ URL string }
			}
		}
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil {
			g.t.Fatal(err)
		}
		if h.Scope == patientA.Scope && b.Total != nil {
			g.t.Errorf("a total of %d", *b.Total)
		}
		for _, e := range b.Entry {
			all += cmp.Or(strings.TrimPrefix(e.Resource.Subject.Reference, "Patient/"), "-")
		}
		target = b.next()
	}
	return all
}

// TestHistoryOfDeletions checks that deletions, which say nothing of whose the resource was, are left out.
func TestHistoryOfDeletions(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	moved(g)
	g.send(clinician, httptest.NewRequest(http.MethodDelete, "/fhir/R4/Observation/moved", nil))
	if got := g.patients(patientA, "Observation/moved/_history"); got != "aa" {
		t.Errorf("got %q", got)
	}
}

// TestHistoryOfAnother checks that a server that answers with another resource's versions is not believed.
func TestHistoryOfAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	next := sent([]byte(`{"resourceType":"Bundle","type":"history","entry":[{"resource":{"resourceType":"Observation","id":"other","subject":{"reference":"Patient/a"}}}]}`))
	err := g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/o/_history", nil), next, enforce.Bearer{Rights: access.New(patientA, g.Shared)})
	if refused, ok := errors.AsType[*guard.Error](err); !ok || refused.Status != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
}

// TestHistoryAddresses checks that versions are told of by addresses of ours, whatever the server calls itself in its answers to
// their writes.
func TestHistoryAddresses(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"http://10.0.0.1/api/Observation/o/_history/1": "https://gateway.example/fhir/R4/Observation/o/_history/1",
		"Observation/o/_history/1":                     "https://gateway.example/fhir/R4/Observation/o/_history/1",
		"http://10.0.0.1/api/job":                      "",
	} {
		g := newGateway(t)
		g.server.Answers = map[string]http.HandlerFunc{"Observation/o/_history": answering(`{"resourceType":"Bundle","type":"history","entry":[
			{"resource":{"resourceType":"Observation","id":"o","subject":{"reference":"Patient/a"}},"response":{"status":"201","location":"` + location + `"}}]}`)}
		var b struct {
			Entry []struct{ Response struct{ Location string } }
		}
		if err := json.NewDecoder(g.get(patientA, "Observation/o/_history").Body).Decode(&b); err != nil || len(b.Entry) != 1 || b.Entry[0].Response.Location != want {
			t.Errorf("%s: %+v, %v", location, b, err)
		}
	}
}
