package enforce_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// All that a resource refers to comes along as far as scopes cover it, whatever wildcards the FHIR server knows.
func TestIncludeAll(t *testing.T) {
	t.Parallel()
	encounters := access.Holder{Scope: "patient/Encounter.rs patient/Practitioner.rs", Patient: "a"}
	for _, value := range []string{"*", "*:*", "Encounter:*"} {
		testSearches(t, chart, []searchCase{
			{"all, " + value, patientA, "Encounter?_include=" + value, "Encounter/ea Organization/org Patient/a Practitioner/alice"},
			{"as scopes go, " + value, encounters, "Encounter?_include=" + value, "Encounter/ea Practitioner/alice"},
			{"another's, " + value, patientA, "Observation?_id=a4&_include=" + strings.Replace(value, "Encounter", "Observation", 1), "Observation/a4 Patient/a Practitioner/bob"},
		})
	}
	own := access.Holder{Scope: "patient/Patient.rs patient/Encounter.rs", Patient: "a"}
	for _, value := range []string{"*", "*:*"} {
		testSearches(t, chart, []searchCase{{"what refers, " + value, own, "Patient?_revinclude=" + value, "Encounter/ea Patient/a"}})
	}
	g := newGateway(t, chart...)
	var asked []string
	g.server.Seen = func(r *http.Request) {
		parameters, _ := smart.ParseParameters(r.URL.RawQuery)
		for _, p := range parameters {
			if p.Name == "_include" {
				asked = append(asked, p.Value)
			}
		}
	}
	g.found(encounters, "Encounter?_include=*:*")
	if slices.Sort(asked); slices.Contains(asked, "*:*") || slices.Contains(asked, "Encounter:service-provider") || !slices.Contains(asked, "Encounter:practitioner") {
		t.Errorf("asked for %v", asked)
	}
}
