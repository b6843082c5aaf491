package compartment

import (
	"slices"
	"testing"
)

// TestMembers compares with R4's definitions (4.0.1), whose pages list the types.
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
			m, ok := Members(tt.compartment, tt.resourceType)
			if !slices.Equal(m.Params, tt.params) || m.Self != tt.self || ok != tt.ok {
				t.Errorf("got %v self %v ok %v", m.Params, m.Self, ok)
			}
		})
	}
}

// TestTypes counts the types of each compartment.
func TestTypes(t *testing.T) {
	t.Parallel()
	types := make(map[string]int)
	for k := range table() {
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
	if params, ok := Patient("Patient"); len(params) != 0 || !ok {
		t.Errorf("got %v %v", params, ok)
	}
	if params, ok := Patient("Group"); !slices.Equal(params, []string{"member"}) || !ok {
		t.Errorf("got %v %v", params, ok)
	}
}
