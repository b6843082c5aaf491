package searchparam

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Expressions of US Core and CARIN find the expected elements.
func TestSet(t *testing.T) {
	t.Parallel()
	const (
		race    = `"extension":[{"url":"http://x/birthsex","valueCode":"2106-3"},{"url":"http://x/race","extension":[{"url":"ombCategory","valueCoding":{"system":"urn:oid:1","code":"2106-3"}},{"url":"text","valueString":"White"}]}]`
		patient = `{"resourceType":"Patient","id":"a",` + race + `}`
		eob     = `{"resourceType":"ExplanationOfBenefit","id":"a","billablePeriod":{"start":"2024-01-02"},"item":[{"servicedDate":"2024-02-03"},{"servicedPeriod":{"start":"2024-03-04","end":"2024-03-05"}}]}`
	)
	for _, tt := range []struct {
		name, resource, kind, expression, value string
		want                                    bool
	}{
		{"race", patient, "token", "Patient.extension.where(url = 'http://x/race').extension.value.code", "2106-3", true},
		{"another race", patient, "token", "Patient.extension.where(url = 'http://x/race').extension.value.code", "2054-5", false},
		{"another extension", patient, "token", "Patient.extension.where(url = 'http://x/other').extension.value.code", "2106-3", false},
		{"two filters", patient, "token", "Patient.extension.where(url='http://x/race').extension.where(url='ombCategory').valueCoding", "urn:oid:1|2106-3", true},
		{"two filters, the second not met", patient, "token", "Patient.extension.where(url='http://x/race').extension.where(url='detailed').valueCoding", "2106-3", false},
		{"extension()", patient, "token", "Patient.extension('http://x/race').extension('ombCategory').value.as(Coding)", "2106-3", true},
		{"ofType", patient, "string", "Patient.extension('http://x/race').extension('text').value.ofType(string)", "white", true},
		{"a choice by another type", patient, "token", "Patient.extension('http://x/race').extension('ombCategory').value.ofType(CodeableConcept)", "2106-3", false},
		{"parentheses", patient, "string", "((Patient.extension('http://x/race').extension('text').value as string))", "white", true},
		{"choice", eob, "date", "ExplanationOfBenefit.billablePeriod | ExplanationOfBenefit.item.serviced", "2024-02-03", true},
		{"choice, a period", eob, "date", "(ExplanationOfBenefit.billablePeriod | ExplanationOfBenefit.item.serviced)", "ge2024-03-04", true},
		{"start", eob, "date", "ExplanationOfBenefit.billablePeriod.start", "2024-01-02", true},
		{"of several types", eob, "date", "Claim.billablePeriod.exists() | ExplanationOfBenefit.billablePeriod.start", "2024-01-02", true},
		{"role", `{"resourceType":"CareTeam","id":"a","participant":[{"role":[{"coding":[{"code":"doctor"}]}]}]}`, "token", "CareTeam.participant.role", "doctor", true},
		{"description", `{"resourceType":"Goal","id":"a","description":{"coding":[{"code":"x"}]}}`, "token", "Goal.description", "x", true},
		{"disposition", `{"resourceType":"Encounter","id":"a","hospitalization":{"dischargeDisposition":{"coding":[{"code":"home"}]}}}`, "token", "Encounter.hospitalization.dischargeDisposition", "home", true},
		{"asserted", `{"resourceType":"Condition","id":"a","extension":[{"url":"http://x/asserted","valueDateTime":"2024-05-06"}]}`, "date", "Condition.extension.where(url = 'http://x/asserted').valueDateTime", "2024-05-06", true},
		{"reference", `{"resourceType":"Encounter","id":"a","subject":{"reference":"Patient/b"}}`, "reference", "Encounter.subject.where(resolve() is Patient)", "Patient/b", true},
		{"reference to another type", `{"resourceType":"Encounter","id":"a","subject":{"reference":"Group/b"}}`, "reference", "Encounter.subject.where(resolve() is Patient)", "Group/b", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, err := resource.Parse([]byte(tt.resource))
			if err != nil {
				t.Fatal(err)
			}
			var s Set
			if err := s.Add(Definition{Code: "own", Type: tt.kind, Expression: tt.expression, Base: []string{res.Type}}); err != nil {
				t.Fatal(err)
			}
			p, ok := s.Lookup(res.Type, "own")
			if got, err := p.Matches(res, tt.value); got != tt.want || err != nil || !ok || !p.IsSiteDefined {
				t.Errorf("matches %v, %v", got, err)
			}
		})
	}
}

// The error for a definition that cannot be evaluated contains the reason.
func TestSetRefuses(t *testing.T) {
	t.Parallel()
	const path = "Patient.name.given"
	for _, tt := range []struct{ name, base, code, kind, expression, want string }{
		{"function", "Patient", "own", "string", "Patient.name.first().given", "unsupported function first()"},
		{"condition", "Patient", "own", "token", "Patient.deceased.exists() and Patient.deceased != false", "!"},
		{"other resource", "Patient", "own", "string", "Patient.managingOrganization.resolve().name", "resolve()"},
		{"behind a reference", "Patient", "own", "token", "Patient.generalPractitioner.where(resolve() is Practitioner).id", "another resource"},
		{"contained", "Patient", "own", "token", "Patient.contained.id", "another resource"},
		{"resolve to no type", "Patient", "own", "reference", "Patient.generalPractitioner.where(resolve() is Nobody)", "resolve()"},
		{"condition of a filter", "Patient", "own", "string", "Patient.name.where(use!='old').given", "!"},
		{"two conditions", "Patient", "own", "string", "Patient.name.where(use='old' and text='x').given", "unsupported argument of where()"},
		{"filter by an unknown element", "Patient", "own", "string", "Patient.name.where(usage='old').given", "where()"},
		{"index", "Patient", "own", "string", "Patient.name[0].given", "["},
		{"no element", "Patient", "own", "string", "Patient.nickname", `element "nickname" does not exist`},
		{"extension of a primitive", "Patient", "own", "string", "Patient.birthDate.extension('http://x').value.ofType(string)", "extension()"},
		{"wrong cast", "Patient", "own", "date", "(Patient.deceased as Period)", `path does not lead to elements of type "Period"`},
		{"wrong kind", "Patient", "own", "date", path, "path leads to no element of "},
		{"the resource", "Patient", "own", "token", "Patient", "expression contains no element"},
		{"another type's", "Patient", "own", "string", "Practitioner.name.given", "path leads to no element of "},
		{"nothing", "Patient", "own", "string", "", "expected an element or function"},
		{"open parenthesis", "Patient", "own", "string", "(" + path, "missing closing parenthesis"},
		{"open string", "Patient", "own", "string", "Patient.name.where(use='old", "unterminated string"},
		{"escape", "Patient", "own", "string", `Patient.name.where(use='o\'ld').given`, "escape"},
		{"rest", "Patient", "own", "string", path + " " + path, `unexpected "Patient"`},
		{"step without a name", "Patient", "own", "string", "Patient..name", "expected an element or function"},
		{"too long", "Patient", "own", "string", path + strings.Repeat(" ", maxExpression), "bytes"},
		{"too many types", "Patient", "own", "token", "Patient.extension.value.extension.value.extension.value.code", "too many"},
		{"composite", "Patient", "own", "composite", path, "path leads to no element of "},
		{"no kind", "Patient", "own", "text", path, "type must be one of"},
		{"no name", "Patient", "", "string", path, "code must have only letters"},
		{"a result parameter", "Patient", "_filter", "string", path, "code must have only letters"},
		{"a chain", "Patient", "a.b", "string", path, "code must have only letters"},
		{"no resource", "HumanName", "own", "string", "HumanName.given", "is not a resource type of FHIR R4"},
		{"all resources", "Resource", "own", "token", "Resource.id", "is not a resource type of FHIR R4"},
		{"R4's own", "Observation", "subject", "reference", "Observation.focus", "already defined by FHIR R4"},
		{"R4's for all", "Patient", "_id", "token", "Patient.name.id", "already defined by FHIR R4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s Set
			err := s.Add(Definition{Code: tt.code, Type: tt.kind, Expression: tt.expression, Base: []string{tt.base}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if _, ok := s.siteDefined[parameterKey{tt.base, tt.code}]; ok {
				t.Error("it is known")
			}
		})
	}
}

// A site cannot replace R4's parameters, because compartments depend on them.
func TestSetKeepsR4(t *testing.T) {
	t.Parallel()
	var s Set
	d := Definition{Code: "subject", Type: "reference", Expression: "CareTeam.participant.member | Slot.schedule", Base: []string{"CareTeam", "Slot"}}
	if err := s.Add(d); err != nil {
		t.Fatal(err)
	}
	if p, _ := s.Lookup("CareTeam", "subject"); p.IsSiteDefined || slices.Equal(p.Paths[0].Elements, []string{"participant", "member"}) {
		t.Errorf("R4's is %+v", p)
	}
	if p, ok := s.Lookup("Slot", "subject"); !ok || !p.IsSiteDefined {
		t.Error("that of a type without one is not known")
	}
	if err := s.Add(d); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if d.Expression = "Slot.extension.value.ofType(Reference)"; !errors.Is(s.Add(d), errInvalidDefinition) {
		t.Error("another one of the same name is taken")
	}
}

func FuzzPaths(f *testing.F) {
	f.Add("(Patient.extension.where(url = 'x').value as string) | Patient.name.ofType(HumanName).given")
	f.Fuzz(func(t *testing.T, expression string) {
		paths, err := r4Structures().Paths("Patient", expression)
		if err != nil && !errors.Is(err, errExpression) {
			t.Error(err)
		}
		for _, p := range paths {
			if len(p.Elements) == 0 || p.Type == "" {
				t.Errorf("%q: %+v", expression, p)
			}
		}
	})
}

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
	for _, unknown := range []parameterKey{{"Observation", "nothing"}, {"Nothing", "code"}, {"Binary", "_text"}, {"Patient", "birthdate:missing"}, {"", ""}} {
		if p, ok := Lookup(unknown.resourceType, unknown.name); ok {
			t.Errorf("%v: %+v", unknown, p)
		}
	}
}

// Every line of the table is parsed completely. The test lists the parameters without paths.
func TestTable(t *testing.T) {
	t.Parallel()
	if got, want := len(r4Parameters()), strings.Count(r4Table, "\n"); got != want {
		t.Errorf("%d parameters on %d lines", got, want)
	}
	without := map[parameterKey]bool{
		{"Bundle", "composition"}: true, {"Bundle", "message"}: true, {"Patient", "deceased"}: true,
		{"Resource", "_content"}: true, {"Resource", "_query"}: true, {"DomainResource", "_text"}: true,
	}
	for k, p := range r4Parameters() {
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

// checkPath checks that a path contains no FHIRPath.
func checkPath(t *testing.T, k parameterKey, path resource.Path) {
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

// Parameters returns exactly the parameters that Lookup finds and Matches can evaluate.
func TestParameters(t *testing.T) {
	t.Parallel()
	for resourceType, want := range map[string]struct{ has, hasNot []string }{
		"Patient": {[]string{"_id", "_lastUpdated", "birthdate", "name"}, []string{"_text", "_content", "code"}},
		"Binary":  {[]string{"_id", "_lastUpdated"}, []string{"_text", "name"}},
	} {
		var names []string
		for _, p := range Parameters(resourceType) {
			names = append(names, p.Name)
			if found, ok := Lookup(resourceType, p.Name); !ok || found.Name != p.Name {
				t.Errorf("%s: Lookup has no %s", resourceType, p.Name)
			}
		}
		for _, name := range want.has {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %s: %q", resourceType, name, names)
			}
		}
		for _, name := range want.hasNot {
			if slices.Contains(names, name) {
				t.Errorf("%s has %s", resourceType, name)
			}
		}
	}
}
