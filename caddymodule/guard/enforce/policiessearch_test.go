package enforce_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestPoliciesSearch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		rules  string
		target string
		want   string
	}{
		{"withheld", reader, "deny resource.id == 'a2'", "Observation", "Observation/a1 Observation/b1"},
		{"withheld, bound", patientA, "deny resource.id == 'a2'", "Observation", "Observation/a1"},
		{"withheld on later pages", reader, "deny resource.id == 'a2'", "Observation?_count=1", "Observation/a1 Observation/b1"},
		{"withheld by what is searched", reader, "deny 'category' in request.parameters && resource.id == 'a1'", "Observation?category=http://c|laboratory", "Observation/b1"},
		{"withheld by what is searched, on later pages", reader, "deny 'status' in request.parameters && resource.id == 'b1'", "Observation?status=final&_count=1", "Observation/a1 Observation/a2"},
		{"denied but for what is searched", reader, "deny !'status' in request.parameters", "Observation?status=final&_count=1", "Observation/a1 Observation/a2 Observation/b1"},
		{"a chain over what is withheld", reader, "deny resource.resourceType == 'Patient'", "Observation?subject:Patient.family=Brown", ""},
		{"a chain over what is not", reader, "deny resource.resourceType == 'Patient' && resource.id == 'a'", "Observation?subject:Patient.family=Brown,Adams", "Observation/b1"},
		{"an include is withheld", reader, "deny resource.resourceType == 'Patient'", "Observation?_id=a1&_include=Observation:subject", "Observation/a1"},
		{"a match is withheld, and what it brings along", reader, "deny resource.resourceType == 'Observation'", "Observation?_id=a1&_include=Observation:subject", ""},
		{"of the system", reader, "deny resource.id == 'a2'", "?_type=Observation,Patient", "Observation/a1 Observation/b1 Patient/a Patient/b"},
		{"in a compartment", reader, "deny resource.id == 'a2';deny request.compartment != 'Patient/a'", "Patient/a/Observation", "Observation/a1"},
		{"allowed", nobody, "allow request.interaction == 'search-type'", "Observation", "Observation/a1 Observation/a2 Observation/b1"},
		{"some allowed", nobody, "allow resource.status == 'final' && resource.id != 'a2'", "Observation", "Observation/a1 Observation/b1"},
		{"some allowed on later pages", nobody, "allow resource.id != 'a2'", "Observation?_count=1", "Observation/a1 Observation/b1"},
		{"some allowed besides one's own", patientA, "allow resource.id == 'b1'", "Observation", "Observation/a1 Observation/a2 Observation/b1"},
		{"an include is allowed", access.Holder{Scope: "patient/Observation.rs", Patient: "a"}, "allow resource.resourceType == 'Patient' && resource.id == 'a'", "Observation?_id=a1&_include=Observation:subject", "Observation/a1 Patient/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			if got := strings.Join(g.found(tt.holder, tt.target), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestPoliciesForm checks that rules see the parameters of a search by POST, which nothing else has to look at.
func TestPoliciesForm(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny 'status' in request.parameters")
	for form, want := range map[string]int{"status=final": http.StatusForbidden, "_id=a1": http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation/_search", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if got := g.send(reader, r); got.StatusCode != want {
			t.Errorf("%s: status %d", form, got.StatusCode)
		}
	}
}

// TestPoliciesPages checks that rules judge each page, and not only the first.
func TestPoliciesPages(t *testing.T) {
	t.Parallel()
	for _, holder := range []access.Holder{reader, patientA} {
		g := newGateway(t, records...).withRules("deny false")
		var b bundle
		if err := json.NewDecoder(g.get(holder, "Observation?_count=1").Body).Decode(&b); err != nil || b.next() == "" {
			t.Fatalf("%+v, %v", b, err)
		}
		g.withRules("deny request.type == 'Observation'")
		if got := g.get(holder, b.next()); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", holder.Scope, got.StatusCode)
		}
	}
}

// TestPoliciesTotal checks that no number tells of what is withheld.
func TestPoliciesTotal(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.id == 'b1'")
	if got := g.get(reader, "Observation?_summary=count"); got.StatusCode != http.StatusForbidden {
		t.Errorf("_summary=count: status %d", got.StatusCode)
	}
	for _, target := range []string{"Observation", "Observation?_total=accurate", "Observation?_count=1"} {
		var b bundle
		if err := json.NewDecoder(g.get(reader, target).Body).Decode(&b); err != nil || b.Total != nil && (*b.Total != len(b.Entry) || b.next() != "") {
			t.Errorf("%s: total %v, %v", target, b.Total, err)
		}
	}
}

// TestPoliciesTotalOfAllowed checks that no number tells of what is not allowed either.
func TestPoliciesTotalOfAllowed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("allow resource.id == 'a1'")
	if got := g.get(nobody, "Observation?_summary=count"); got.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", got.StatusCode)
	}
}

// TestPoliciesWholeResources checks that rules see resources with all their elements, whatever the client asked for.
func TestPoliciesWholeResources(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"Observation?_elements=id", "Observation?_summary=true", "Observation/a1?_elements=id"} {
		g := newGateway(t, records...).withRules("deny resource.status == 'final'")
		var asked []string
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			asked = append(asked, r.URL.RawQuery)
			return g.server.ServeHTTP(w, r)
		})
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
		_ = g.Serve(httptest.NewRecorder(), r, next, enforce.Bearer{Rights: access.New(reader, g.Shared)})
		for _, query := range asked {
			if strings.Contains(query, "_elements") || strings.Contains(query, "_summary") {
				t.Errorf("%s: asked with %s", target, query)
			}
		}
		if len(asked) == 0 {
			t.Errorf("%s: not asked", target)
		}
	}
}

// TestPoliciesOracle checks that searches for what is withheld cannot ask about other resources.
func TestPoliciesOracle(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.resourceType == 'Patient' && resource.id == 'b'")
	for _, target := range []string{"Observation?_filter=a", "Observation?_sort=subject"} {
		if got := g.get(reader, target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", target, got.StatusCode)
		}
	}
}
