package export

import (
	"context"
	"errors"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// If policies judge each resource, an export accepts no parameter with an effect that depends on denied resources, even under
// scopes for all types.
func TestParametersOfJudgedExport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		level            string // level of the export
		name, value      string
		named            []string
		ofAll, whereRule bool // accepted with a scope for all types: without policies, with policies
	}{
		{"", "_since", "2026-01-01T00:00:00Z", nil, true, true},
		{"", "includeAssociatedData", "LatestProvenanceResources", nil, true, false},
		{"", "includeAssociatedData", "custom", nil, true, false},
		{"", "organizeOutputBy", "Patient", nil, true, false},
		{"", "_typeFilter", "Observation?code=1", nil, true, true},
		{"", "_typeFilter", "Observation?subject:Patient.family=Smithson", nil, true, false},
		{"", "_typeFilter", "Observation?_has:Provenance:target:agent=1", nil, true, false},
		{"", "_typeFilter", "Observation?_content=x", nil, true, false},
		{"", "_typeFilter", "Patient?family=Smithson", nil, true, true},
		{"Patient", "_typeFilter", "Patient?family=Smithson", nil, true, false},
		{"Patient", "_typeFilter", "Patient?family=Smithson", []string{"Patient", "Observation"}, true, false},
		{"Patient", "_typeFilter", "Patient?family=Smithson", []string{"Patient"}, true, true},
		{"Group", "_typeFilter", "Patient?family=Smithson", nil, true, false},
		{"Patient", "_typeFilter", "Condition?code=1", []string{"Observation"}, true, false},
		{"Patient", "patient", "Patient/1", nil, true, true},
		{"", "patient", "Patient/1", nil, false, false},
		{"", "_unknown", "x", nil, false, false},
	} {
		for judged, want := range map[bool]bool{false: tt.ofAll, true: tt.whereRule} {
			s := exportSelection{UnrestrictedTypes: access.UnrestrictedTypes{AllTypes: true, MayBeDenied: judged}, interaction: interaction.Interaction{Type: tt.level}}
			if err := s.checkParameter(smart.Parameter{Name: tt.name, Value: tt.value}, tt.named); (err == nil) != want {
				t.Errorf("%s/$export?%s=%s of %q, judged: %v: %v", tt.level, tt.name, tt.value, tt.named, judged, err)
			}
		}
	}
}

// Patients of an export must be identified by id. Other references are rejected before any request is sent.
func TestPatientOfExportHasID(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"x y", "Group/1", "http://other.example/Patient/1", "Patient/", "Patient/1/_history/2", "1,Patient/1?name=x"} {
		s := exportSelection{UnrestrictedTypes: access.UnrestrictedTypes{AllTypes: true, MayBeDenied: true}, interaction: interaction.Interaction{Type: "Patient"}}
		err := new(Handler).checkSubjects(context.Background(), s, []smart.Parameter{{Name: "patient", Value: value}})
		if !errors.Is(err, message.ErrNotCovered) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
