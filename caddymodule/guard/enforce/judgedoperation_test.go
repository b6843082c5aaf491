package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
)

// entriesOf are the references of a Bundle, over all pages.
func (g *gateway) entriesOf(h access.Holder, r *http.Request) []string {
	g.t.Helper()
	var all []string
	for range 20 {
		var b bundle
		if err := json.NewDecoder(g.send(h, r).Body).Decode(&b); err != nil {
			g.t.Fatal(err)
		}
		for _, e := range b.Entry {
			all = append(all, e.Resource.ResourceType+"/"+e.Resource.ID)
			if !strings.HasPrefix(e.FullURL, "https://gateway.example/fhir/R4/") {
				g.t.Errorf("fullUrl %s", e.FullURL)
			}
		}
		if b.next() == "" {
			slices.Sort(all)
			return all
		}
		r = httptest.NewRequest(http.MethodGet, strings.TrimPrefix(b.next(), "https://gateway.example"), nil)
	}
	g.t.Fatal("the pages do not end")
	return nil
}

// TestJudgedOperation checks that of what the server answers only what the scopes cover comes through.
func TestJudgedOperation(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$own", "patient", "r")
	creating, _ := operation.ParseOperation("$creating", "patient", "c")
	for _, tt := range []struct {
		name, scope, target string
		want                string
	}{
		{"all types", "patient/*.rs", "GET Patient/a/$everything", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"by POST", "patient/*.rs", "POST Patient/a/$everything", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"a type without a scope", "patient/Patient.rs", "GET Patient/a/$everything", "Patient/a"},
		{"a type with r alone", "patient/Patient.rs patient/Observation.r", "GET Patient/a/$everything", "Patient/a"},
		{"a constraint", "patient/Patient.rs patient/Observation.rs?category=http://c|vital-signs", "GET Patient/a/$everything", "Observation/a2 Patient/a"},
		{"named by what is hidden alone", "patient/Patient.rs patient/Practitioner.rs patient/Observation.rs?category=http://c|vital-signs", "GET Patient/a/$everything", "Observation/a2 Patient/a"},
		{"last observations", "patient/*.rs", "GET Observation/$lastn", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"a whole type, of all patients", "user/Patient.rs", "GET Patient/$everything", "Patient/a"},
		{"one of the site's that creates", "patient/*.c", "POST Patient/$creating", ""},
		{"one of the site's", "patient/*.r", "GET Patient/$own", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t, op, creating)
			g.server.Answers["Patient/$creating"] = g.server.Answers["Patient/$own"]
			got := g.entriesOf(access.Holder{Scope: tt.scope, Patient: "a", User: clinician.User}, requestOf(tt.target, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestJudgedBeside checks that what belongs to no patient comes along only if nothing that is hidden could be what names
// it: else it would tell of that.
func TestJudgedBeside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, answer string
		want                string
	}{
		{"nothing is hidden", "patient/*.rs", searchset("Patient/a", "Practitioner/alice"), "Patient/a Practitioner/alice"},
		{"another's record is", "patient/*.rs", searchset("Patient/a", "Practitioner/alice", "Observation/b1"), "Patient/a"},
		{"types could be", "patient/Patient.rs patient/Practitioner.rs", searchset("Patient/a", "Practitioner/alice"), "Patient/a"},
		{"what is seen names it", "patient/*.rs", searchset("Observation/a1", "Practitioner/alice", "Observation/b1"), "Observation/a1 Practitioner/alice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t)
			g.server.Answers["Patient/a/$everything"] = answering(tt.answer)
			got := g.entriesOf(access.Holder{Scope: tt.scope, Patient: "a"}, requestOf("GET Patient/a/$everything", ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestOperationForm checks that the server is asked for whole resources, which alone can be judged.
func TestOperationForm(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$own", "patient", "r")
	g := operating(t, op)
	g.server.Seen = func(r *http.Request) {
		if r.URL.RawQuery != "code=a" {
			t.Errorf("asked %s", r.URL.RawQuery)
		}
	}
	if got := g.get(patientA, "Patient/$own?_elements=id&code=a&_summary=true&_format=json"); got.StatusCode != http.StatusOK {
		t.Errorf("status %d", got.StatusCode)
	}
}

// linkedTo is a Bundle with a link to the next page.
func linkedTo(bundle, self, next string) string {
	return strings.Replace(bundle, `"entry":`, `"link":[{"relation":"self","url":"`+fhirtest.Address+self+`"},{"relation":"next","url":"`+next+`"}],"entry":`, 1)
}

// TestOperationOfPatient checks that operations that pick the latest are confined to the patient.
func TestOperationOfPatient(t *testing.T) {
	t.Parallel()
	parent := access.Holder{Scope: "patient/*.rs user/*.rs", Patient: "a", UserPatient: "b"}
	parent.User.Type, parent.User.ID = "Patient", "b"
	one := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   string // of the server's query; "-" if it is not asked
		status int
	}{
		{"no patient named", one, "Observation/$lastn?max=2", "max=2&patient=Patient/a", 200},
		{"the patient named", one, "Observation/$lastn?patient=a", "patient=Patient/a", 200},
		{"the patient as a subject", one, "Observation/$lastn?subject=Patient/a", "patient=Patient/a", 200},
		{"another patient named", one, "Observation/$lastn?patient=Patient/b", "-", 200},
		{"both named", one, "Observation/$lastn?patient=a&subject=Patient/b", "-", 200},
		{"both named at once", one, "Observation/$lastn?patient=a,b", "-", 200},
		{"another's documents", one, "DocumentReference/$docref?patient=b", "-", 200},
		{"documents", one, "DocumentReference/$docref", "patient=a", 200},
		{"one of two patients", parent, "Observation/$lastn?patient=b", "patient=Patient/b", 200},
		{"neither of two patients", parent, "Observation/$lastn", "-", 400},
		{"a clinician", clinician, "Observation/$lastn?patient=b", "patient=b", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t)
			asked := "-"
			g.server.Seen = func(r *http.Request) {
				if strings.Contains(r.URL.Path, "$") {
					asked, _ = url.QueryUnescape(r.URL.RawQuery)
				}
			}
			if got := g.get(tt.holder, tt.target); got.StatusCode != tt.status || asked != tt.want {
				t.Errorf("status %d, the server was asked %q, want %q", got.StatusCode, asked, tt.want)
			}
		})
	}
}

// TestOperationParameters checks that the parameters of a body are judged like those of a query.
func TestOperationParameters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"none", `{"resourceType":"Parameters"}`, 200, "_count=50"},
		{"allowed", `{"resourceType":"Parameters","parameter":[{"name":"start","valueDate":"2020-01-01"},{"name":"_count","valueInteger":5}]}`, 200, "start=2020-01-01&_count=5"},
		{"not allowed", `{"resourceType":"Parameters","parameter":[{"name":"_filter","valueString":"a"}]}`, 403, "-"},
		{"two values", `{"resourceType":"Parameters","parameter":[{"name":"start","valueDate":"2020-01-01","valueString":"a"}]}`, 400, "-"},
		{"no primitive value", `{"resourceType":"Parameters","parameter":[{"name":"start","valuePeriod":{}}]}`, 400, "-"},
		{"a resource", `{"resourceType":"Parameters","parameter":[{"name":"start","resource":{"resourceType":"Patient"}}]}`, 400, "-"},
		{"no Parameters", `{"resourceType":"Patient"}`, 400, "-"},
		{"no JSON", `<Parameters/>`, 400, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t)
			asked := "-"
			g.server.Seen = func(r *http.Request) {
				if strings.Contains(r.URL.Path, "$") {
					asked, _ = url.QueryUnescape(r.URL.RawQuery)
				}
			}
			got := g.send(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("POST Patient/a/$everything", tt.body))
			if got.StatusCode != tt.status || asked != tt.want {
				t.Errorf("status %d, the server was asked %q, want %d, %q", got.StatusCode, asked, tt.status, tt.want)
			}
		})
	}
}

// TestOperationLinks checks that links in what an operation answers with are ours, where the answer passes too.
func TestOperationLinks(t *testing.T) {
	t.Parallel()
	whole, _ := operation.ParseOperation("$own", "whole", "r")
	instance, _ := operation.ParseOperation("$list", "instance", "r")
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
	}{
		{"of a whole type", clinician, "Patient/$own"},
		{"of a resource", access.Holder{Scope: "patient/*.rs", Patient: "a"}, "Patient/a/$list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t, whole, instance)
			g.server.Answers[tt.target] = answering(linkedTo(searchset("Patient/a"), "/"+tt.target, fhirtest.Address+"?_getpages=1"))
			var b bundle
			if err := json.NewDecoder(g.get(tt.holder, tt.target).Body).Decode(&b); err != nil || !strings.HasPrefix(b.next(), "https://gateway.example/fhir/R4/_page/") {
				t.Fatalf("%v, next %s", err, b.next())
			}
			g.server.Answers[""] = answering(searchset("Observation/a1"))
			if text, _ := io.ReadAll(g.get(tt.holder, b.next()).Body); !strings.Contains(string(text), `"id":"a1"`) {
				t.Errorf("next page: %s", text)
			}
		})
	}
}
