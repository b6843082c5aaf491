package searchparam

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	reference := func(elements ...string) resource.Path { return resource.Path{Elements: elements, Type: "Reference"} }
	tests := []struct {
		resourceType, name string
		want               Parameter
	}{
		{"Observation", "category", Parameter{Kind: Token, Paths: []resource.Path{{Elements: []string{"category"}, Type: "CodeableConcept"}}}},
		{"Observation", "encounter", Parameter{Kind: Reference, Paths: []resource.Path{reference("encounter")}, Targets: []string{"Encounter", "EpisodeOfCare"}}},
		{"Observation", "value-string", Parameter{Kind: String, Paths: []resource.Path{
			{Elements: []string{"valueString"}, Type: "string"}, {Elements: []string{"valueCodeableConcept", "text"}, Type: "string"},
		}}},
		{"Appointment", "practitioner", Parameter{Kind: Reference, Targets: []string{"Practitioner"}, Paths: []resource.Path{
			{Elements: []string{"participant", "actor"}, Type: "Reference", Target: "Practitioner"},
		}}},
		{"Patient", "phone", Parameter{Kind: Token, Paths: []resource.Path{
			{Elements: []string{"telecom"}, Type: "ContactPoint", Filters: []resource.Filter{{Depth: 1, Element: "system", Value: "phone"}}},
		}}},
		{"Library", "depends-on", Parameter{Kind: Reference, Paths: []resource.Path{
			{Elements: []string{"relatedArtifact", "resource"}, Type: "canonical", Filters: []resource.Filter{{Depth: 1, Element: "type", Value: "depends-on"}}},
		}}},
		{"Observation", "status", Parameter{Kind: Token, Paths: []resource.Path{
			{Elements: []string{"status"}, Type: "code", System: "http://hl7.org/fhir/observation-status"},
		}}},
		{"Goal", "target-date", Parameter{Kind: Date, Paths: []resource.Path{{Elements: []string{"target", "dueDate"}, Type: "date"}}}},
		{"InsurancePlan", "name", Parameter{Kind: String, Paths: []resource.Path{
			{Elements: []string{"name"}, Type: "string"}, {Elements: []string{"alias"}, Type: "string"},
		}}},
		{"Observation", "code-value-quantity", Parameter{Kind: Composite}},
		{"Patient", "deceased", Parameter{Kind: Token}},
		{"Patient", "_id", Parameter{Kind: Token, Paths: []resource.Path{{Elements: []string{"id"}, Type: "string"}}}},
		{"Binary", "_lastUpdated", Parameter{Kind: Date, Paths: []resource.Path{{Elements: []string{"meta", "lastUpdated"}, Type: "instant"}}}},
		{"Patient", "_text", Parameter{Kind: String}},
	}
	for _, tt := range tests {
		t.Run(tt.resourceType+" "+tt.name, func(t *testing.T) {
			t.Parallel()
			tt.want.Name = tt.name
			if got, ok := Lookup(tt.resourceType, tt.name); !ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v %v", got, ok)
			}
		})
	}
}

func TestLookupUnknown(t *testing.T) {
	t.Parallel()
	for _, unknown := range []key{{"Observation", "nothing"}, {"Nothing", "code"}, {"Binary", "_text"}, {"Patient", "birthdate:missing"}, {"", ""}} {
		if p, ok := Lookup(unknown.resourceType, unknown.name); ok {
			t.Errorf("%v: %+v", unknown, p)
		}
	}
}

// TestTable checks that every line is read whole, and which parameters have no paths.
func TestTable(t *testing.T) {
	t.Parallel()
	if got, want := len(table()), strings.Count(r4, "\n"); got != want {
		t.Errorf("%d parameters on %d lines", got, want)
	}
	without := map[key]bool{
		{"Bundle", "composition"}: true, {"Bundle", "message"}: true, {"Patient", "deceased"}: true,
		{"Resource", "_content"}: true, {"Resource", "_query"}: true, {"DomainResource", "_text"}: true,
	}
	for k, p := range table() {
		if p.Kind > Special {
			t.Errorf("%v: kind %d", k, p.Kind)
		}
		if (len(p.Paths) == 0) != (p.Kind == Composite || without[k]) {
			t.Errorf("%v: paths %v", k, p.Paths)
		}
		for _, path := range p.Paths {
			checkPath(t, k, path)
		}
	}
}

// checkPath checks that no FHIRPath is left in a path.
func checkPath(t *testing.T, k key, path resource.Path) {
	t.Helper()
	if path.Type == "" || strings.ContainsAny(strings.Join(path.Elements, "")+path.Type, "[]().:=@ ") {
		t.Errorf("%v: %+v", k, path)
	}
	for _, f := range path.Filters {
		if f.Depth < 1 || f.Depth > len(path.Elements) {
			t.Errorf("%v: filter %+v", k, f)
		}
	}
}
