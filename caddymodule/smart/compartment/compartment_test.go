package compartment

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// The lists of types equal those in R4's definitions (4.0.1).
func TestMembers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, compartment, resourceType string
		params                          []string
		self, ok                        bool
	}{
		{"one parameter", "Patient", "Encounter", []string{"patient"}, false, true},
		{"several", "Patient", "Coverage", []string{"beneficiary", "payor", "policy-holder", "subscriber"}, false, true},
		{"List", "Patient", "List", []string{"source", "subject"}, false, true},
		{"never through focus", "Patient", "Observation", []string{"performer", "subject"}, false, true},
		{"the patient", "Patient", "Patient", []string{"link"}, true, true},
		{"Task, which R5 adds", "Patient", "Task", nil, false, false},
		{"no member", "Patient", "Organization", nil, false, false},
		{"the encounter", "Encounter", "Encounter", nil, true, true},
		{"related-ref", "Encounter", "DocumentManifest", []string{"related-ref"}, false, true},
		{"the practitioner", "Practitioner", "Practitioner", nil, true, true},
		{"the related person", "RelatedPerson", "RelatedPerson", nil, true, true},
		{"the device", "Device", "Device", nil, true, true},
		{"of a device", "Device", "Observation", []string{"device", "subject"}, false, true},
		{"no compartment", "Group", "Patient", nil, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, ok := LookUp(tt.compartment, tt.resourceType)
			if !slices.Equal(m.Params, tt.params) || m.OwnsCompartment != tt.self || ok != tt.ok {
				t.Errorf("got %v self %v ok %v", m.Params, m.OwnsCompartment, ok)
			}
		})
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	types := make(map[string]int)
	for k := range parametersByType() {
		types[k.compartment]++
	}
	for compartment, want := range map[string]int{
		"Device": 33, "Encounter": 25, "Patient": 66, "Practitioner": 59, "RelatedPerson": 32,
	} {
		if types[compartment] != want {
			t.Errorf("%s has %d types, want %d", compartment, types[compartment], want)
		}
	}
}

func TestPatientByIDAlone(t *testing.T) {
	t.Parallel()
	if params, ok := PatientParameters("Patient"); len(params) != 0 || !ok {
		t.Errorf("got %v %v", params, ok)
	}
	if params, ok := PatientParameters("Group"); !slices.Equal(params, []string{"member"}) || !ok {
		t.Errorf("got %v %v", params, ok)
	}
}

// For each parameter of each type in a patient's compartment, a resource with only the searched element is a member.
func TestEveryType(t *testing.T) {
	t.Parallel()
	types := 0
	for k := range parametersByType() {
		if k.compartment != "Patient" || k.resourceType == "Patient" {
			continue
		}
		types++
		params, _ := PatientParameters(k.resourceType)
		for _, name := range params {
			parameter, ok := searchparam.Lookup(k.resourceType, name)
			if !ok || parameter.Kind != searchparam.Reference || len(parameter.Paths) == 0 {
				t.Fatalf("%s.%s: %+v", k.resourceType, name, parameter)
			}
			for _, path := range parameter.Paths {
				checkPath(t, k.resourceType, path)
			}
		}
	}
	if types != 65 {
		t.Errorf("%d types", types)
	}
}

// checkPath checks that a reference at the end of a path determines membership, through objects and arrays.
func checkPath(t *testing.T, resourceType string, path resource.Path) {
	t.Helper()
	inside, outside := `{"reference":"Patient/a"}`, `{"reference":"Patient/b"}`
	for _, element := range slices.Backward(path.Elements) {
		inside = fmt.Sprintf(`[null,{%q:%s}]`, element, inside)
		outside = fmt.Sprintf(`{%q:%s}`, element, outside)
	}
	inside = strings.TrimSuffix(strings.TrimPrefix(inside, "[null,"), "]")
	for text, want := range map[string]bool{inside: true, outside: false} {
		r := parse(t, `{"resourceType":"`+resourceType+`",`+text[1:])
		if IsInPatient(r, "a") != want {
			t.Errorf("%s: inside %v", text, !want)
		}
		if got := slices.Collect(Patients(r)); len(got) != 1 || (got[0] == "a") != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestMembership(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		in         bool
		patients   string
	}{
		{"by its id", `{"resourceType":"Patient","id":"a"}`, true, "a"},
		{"another patient", `{"resourceType":"Patient","id":"b"}`, false, "b"},
		{"a patient without an id", `{"resourceType":"Patient"}`, false, ""},
		{"linked patient", `{"resourceType":"Patient","id":"b","link":[{"other":{"reference":"Patient/a"}}]}`, false, "b"},
		{"subject", `{"resourceType":"Observation","subject":{"reference":"Patient/a"}}`, true, "a"},
		{"two patients", `{"resourceType":"Observation","subject":{"reference":"Patient/b"},"performer":[{"reference":"Patient/a"}]}`, true, "a b"},
		{"of a version", `{"resourceType":"Observation","subject":{"reference":"Patient/a/_history/2"}}`, true, "a"},
		{"on this server", `{"resourceType":"Observation","subject":{"reference":"https://own.example/fhir/Patient/a"}}`, true, "a"},
		{"on another server", `{"resourceType":"Observation","subject":{"reference":"https://x.example/fhir/Patient/a"}}`, false, "https://x.example/fhir/Patient/a"},
		{"another type", `{"resourceType":"Observation","subject":{"reference":"Group/a"}}`, false, ""},
		{"by identifier", `{"resourceType":"Observation","subject":{"type":"Patient","identifier":{"value":"a"}}}`, false, ""},
		{"identifier beside", `{"resourceType":"Observation","subject":{"reference":"Patient/a","identifier":{"value":"b"}}}`, true, "a"},
		{"id alone", `{"resourceType":"Observation","subject":{"reference":"a"}}`, false, `"a"`},
		{"conditional", `{"resourceType":"Observation","subject":{"reference":"Patient?_id=a"}}`, false, `"Patient?_id=a"`},
		{"conditional, by a parameter for patients", `{"resourceType":"Basic","subject":{"reference":"Patient?_id=a"}}`, false, `"Patient?_id=a"`},
		{"fragment of a patient", `{"resourceType":"Observation","subject":{"reference":"Patient/a#x"}}`, false, `"Patient/a#x"`},
		{"not yet known", `{"resourceType":"Observation","subject":{"reference":"urn:uuid:187e0c12-8dd2-67e2-99b2-bf273c878281"}}`, false, ""},
		{"no string", `{"resourceType":"Observation","subject":{"reference":["Patient/a"]}}`, false, ""},
		{"no parameter of membership", `{"resourceType":"Observation","focus":[{"reference":"Patient/a"}]}`, false, ""},
		{"a deeper element of the same name", `{"resourceType":"Observation","extension":[{"subject":{"reference":"Patient/a"}}]}`, false, ""},
		{"contained patient", `{"resourceType":"Observation","contained":[{"resourceType":"Patient","id":"a"}],"subject":{"reference":"#a"}}`, false, "#a"},
		{
			"contained person of a patient",
			`{"resourceType":"Observation","contained":[{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Patient/a"}}],"performer":[{"reference":"#r"}]}`,
			false, "a",
		},
		{"no type of a compartment", `{"resourceType":"Organization","subject":{"reference":"Patient/a"}}`, false, ""},
		{"Task", `{"resourceType":"Task","for":{"reference":"Patient/a"}}`, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := parse(t, tt.text)
			if got := IsInPatient(r, "a"); got != tt.in {
				t.Errorf("inside %v", got)
			}
			if IsInPatient(r, "") {
				t.Error("in the compartment of an empty patient id")
			}
			got := slices.Sorted(Patients(r))
			if strings.Join(got, " ") != tt.patients {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Iteration stops when the caller stops.
func TestPatientsStops(t *testing.T) {
	t.Parallel()
	const text = `{"resourceType":"Observation","subject":{"reference":"#r"},"performer":[{"reference":"Patient/b"}],"contained":[
		{"resourceType":"Observation","id":"r","subject":{"reference":"Patient/c"},"performer":[{"reference":"Patient/d"}]}]}`
	for want := range 4 {
		count := 0
		for range Patients(parse(t, text)) {
			if count++; count == want {
				break
			}
		}
		if want > 0 && count != want {
			t.Errorf("%d patients, want %d", count, want)
		}
	}
}

func BenchmarkInPatient(b *testing.B) {
	r, err := resource.Parse([]byte(`{"resourceType":"Observation","id":"o","status":"final","subject":{"reference":"Patient/a"},"performer":[]}`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !IsInPatient(r, "a") {
			b.Fatal("outside")
		}
	}
}

func parse(t *testing.T, text string) resource.Resource {
	t.Helper()
	r, err := resource.Parse([]byte(text), "https://own.example/fhir")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}
