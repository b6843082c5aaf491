package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// TestPoliciesWrite checks that rules judge what is stored and what is to be.
func TestPoliciesWrite(t *testing.T) {
	t.Parallel()
	const (
		ofA = `{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`
		by  = `{"resourceType":"Observation","status":"final","performer":[{"reference":"Practitioner/alice"}]}`
		ofB = `{"resourceType":"Observation","id":"b1","status":"final","subject":{"reference":"Patient/b"}}`
	)
	for _, tt := range []struct {
		name           string
		holder         access.Holder
		rules          string
		method, target string
		body           string
		status         int
	}{
		{"create", clinician, "deny resource.status == 'final'", "POST", "Observation", ofA, 201},
		{"create denied", clinician, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create about what is withheld", clinician, "deny resource.resourceType == 'Patient'", "POST", "Observation", ofA, 403},
		{"create naming somebody", clinician, "deny resource.resourceType == 'Patient'", "POST", "Observation", by, 201},
		{"create naming somebody who is withheld", clinician, "deny resource.resourceType == 'Practitioner'", "POST", "Observation", by, 403},
		{"create denied, bound", patientA, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create allowed", nobody, "allow request.interaction == 'create'", "POST", "Observation", ofB, 201},
		{"create allowed by the resource", patientA, "allow resource.subject.reference == 'Patient/b'", "POST", "Observation", ofB, 201},
		{"create not allowed by the resource", patientA, "allow resource.status == 'draft'", "POST", "Observation", ofB, 403},
		{"update", clinician, "deny resource.status == 'draft'", "PUT", "Observation/a1", ofA, 200},
		{"update to what is denied", clinician, "deny resource.status == 'amended'", "PUT", "Observation/a1", ofA, 403},
		{"update of what is withheld", clinician, "deny resource.status == 'final'", "PUT", "Observation/a1", ofA, 404},
		{"update beyond one's compartment", patientA, "allow resource.subject.reference == 'Patient/b'", "PUT", "Observation/b1", ofB, 200},
		{"delete", clinician, "deny resource.status == 'draft'", "DELETE", "Observation/a1", "", 204},
		{"delete denied", clinician, "deny request.method == 'DELETE'", "DELETE", "Observation/a1", "", 403},
		{"delete of what is withheld", clinician, "deny resource.status == 'final'", "DELETE", "Observation/a1", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			r := httptest.NewRequest(tt.method, "/fhir/R4/"+tt.target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/fhir+json")
			if got := g.send(tt.holder, r); got.StatusCode != tt.status {
				said, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, said)
			}
		})
	}
}

// TestPoliciesHistory checks that each version is judged.
func TestPoliciesHistory(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.status == 'final'")
	g.server.Put(`{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`)
	var b bundle
	if err := json.NewDecoder(g.get(reader, "Observation/a1/_history").Body).Decode(&b); err != nil || len(b.Entry) != 1 {
		t.Errorf("got %+v, %v", b, err)
	}
	for _, target := range []string{"Observation/_history", "_history"} {
		if got := g.get(reader, target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", target, got.StatusCode)
		}
	}
}

// TestPoliciesCurrentVersion checks that the current version decides about all: a label that is added later protects the
// versions before it, and that of what was deleted since.
func TestPoliciesCurrentVersion(t *testing.T) {
	t.Parallel()
	const (
		plain  = `{"resourceType":"Patient","id":"star","name":[{"family":"Smithson"}]}`
		vip    = `{"resourceType":"Patient","id":"star","name":[{"family":"Smithson"}],"meta":{"security":[{"code":"VIP"}]}}`
		rule   = "deny resource.meta.security.code == 'VIP'"
		remove = ""
	)
	for _, tt := range []struct {
		name     string
		versions []string
		want     []int // of the history, of each version, of the history's second page
	}{
		{"never labelled", []string{plain, plain}, []int{200, 200, 200}},
		{"labelled later", []string{plain, vip}, []int{404, 404, 404}},
		{"labelled, then deleted", []string{plain, vip, remove}, []int{404, 404, 404, 404}},
		{"deleted without a label", []string{plain, remove}, []int{200, 200, 404}},
		{"labelled once", []string{vip, plain}, []int{200, 404, 200}},
		{"labelled, deleted and stored again", []string{plain, vip, remove, plain}, []int{200, 200, 404, 404, 200}},
	} {
		for _, holder := range []access.Holder{reader, {Scope: "patient/*.rs", Patient: "star"}, {Scope: "system/*.rs"}} {
			t.Run(tt.name+" "+holder.Scope, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t).withRules(rule)
				for _, text := range tt.versions {
					if text == remove {
						g.server.Delete("Patient/star")
					} else {
						g.server.Put(text)
					}
				}
				targets := []string{"Patient/star/_history"}
				for n := range tt.versions {
					targets = append(targets, "Patient/star/_history/"+strconv.Itoa(n+1))
				}
				for n, target := range targets {
					if got := g.get(holder, target); got.StatusCode != tt.want[n] {
						t.Errorf("%s: status %d, want %d", target, got.StatusCode, tt.want[n])
					}
					batch := `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"` + target + `"}}]}`
					text, _ := io.ReadAll(g.send(holder, requestOf("POST ", batch)).Body)
					if hidden := !strings.Contains(string(text), "Smithson"); hidden != (tt.want[n] == http.StatusNotFound) {
						t.Errorf("%s in a batch: %s", target, text)
					}
				}
			})
		}
	}
}

// TestPoliciesHistoryPage checks that a link to a page of a history leads nowhere once the current version is denied.
func TestPoliciesHistoryPage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, `{"resourceType":"Patient","id":"star"}`, `{"resourceType":"Patient","id":"star","active":true}`).
		withRules("deny resource.meta.security.code == 'VIP'")
	var b bundle
	if err := json.NewDecoder(g.get(reader, "Patient/star/_history?_count=1").Body).Decode(&b); err != nil || b.next() == "" {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := g.get(reader, b.next()); got.StatusCode != http.StatusOK {
		t.Errorf("before: status %d", got.StatusCode)
	}
	g.server.Put(`{"resourceType":"Patient","id":"star","meta":{"security":[{"code":"VIP"}]}}`)
	if got := g.get(reader, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("after: status %d", got.StatusCode)
	}
}

// TestPoliciesIncludedVersion checks that an include of an old version, to which a reference leads, is dropped if the
// current version is denied.
func TestPoliciesIncludedVersion(t *testing.T) {
	t.Parallel()
	g := newGateway(t, `{"resourceType":"Patient","id":"star"}`, `{"resourceType":"Patient","id":"star","meta":{"security":[{"code":"VIP"}]}}`).
		withRules("deny resource.meta.security.code == 'VIP'")
	g.server.Answers = map[string]http.HandlerFunc{"Observation": answering(`{"resourceType":"Bundle","type":"searchset","entry":[
		{"resource":{"resourceType":"Observation","id":"o","subject":{"reference":"Patient/star/_history/1"}},"search":{"mode":"match"}},
		{"resource":{"resourceType":"Patient","id":"star"},"search":{"mode":"include"}}]}`)}
	if got := strings.Join(g.found(reader, "Observation?_include=Observation:subject"), " "); got != "Observation/o" {
		t.Errorf("got %q", got)
	}
}

// TestPoliciesBatch checks that rules judge each entry of a batch as a request of its own, and a transaction with it.
func TestPoliciesBatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, kind, rule, want string }{
		{"withheld", "batch", "deny request.type == 'Patient' && resource.id == 'b'", "200 404"},
		{"denied", "batch", "deny request.id == 'b'", "200 403"},
		{"denied as a whole", "batch", "deny request.interaction == 'bundle'", "403"},
		{"denied in a transaction", "transaction", "deny request.id == 'b'", "403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			body := `{"resourceType":"Bundle","type":"` + tt.kind + `","entry":[{"request":{"method":"GET","url":"Patient/a"}},{"request":{"method":"GET","url":"Patient/b"}}]}`
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/fhir+json")
			response := g.send(clinician, r)
			var b struct {
				Entry []struct{ Response struct{ Status string } }
			}
			var statuses []string
			if json.NewDecoder(response.Body).Decode(&b) == nil {
				for _, e := range b.Entry {
					statuses = append(statuses, e.Response.Status[:3])
				}
			}
			if len(statuses) == 0 {
				statuses = []string{strconv.Itoa(response.StatusCode)}
			}
			if got := strings.Join(statuses, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
