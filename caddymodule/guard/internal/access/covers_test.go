package access

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// TestCoversNew checks what may be written under a grant that is bound to patient a, and what of it may be read.
func TestCoversNew(t *testing.T) {
	t.Parallel()
	const (
		nothing  = "neither"
		readOnly = "read"
		both     = "written"
		needing  = "written, if others are covered"
	)
	for _, tt := range []struct{ name, text, want string }{
		{"the patient", `{"resourceType":"Patient","id":"a"}`, both},
		{"another patient", `{"resourceType":"Patient","id":"b"}`, nothing},
		{"a patient without an id", `{"resourceType":"Patient"}`, nothing},
		{"own", `{"resourceType":"Observation","subject":{"reference":"Patient/a"}}`, both},
		{"own, of another server", `{"resourceType":"Observation","subject":{"reference":"http://other.example/fhir/Patient/a"}}`, nothing},
		{"another's", `{"resourceType":"Observation","subject":{"reference":"Patient/b"}}`, nothing},
		{"nobody's", `{"resourceType":"Observation"}`, nothing},
		{"of two", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient/b"}]}`, readOnly},
		{"of two, one of another server", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"http://other.example/fhir/Patient/b"}]}`, readOnly},
		{"own and a search", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient?identifier=1"}]}`, readOnly},
		{"own, containing another's", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"contained":[{"resourceType":"Specimen","subject":{"reference":"Patient/b"}}]}`, nothing},
		{"a shared type", `{"resourceType":"Organization","id":"o"}`, readOnly},
		{"a type of no patient", `{"resourceType":"ValueSet","id":"v"}`, nothing},
		{"own device", `{"resourceType":"Device","patient":{"reference":"Patient/a"}}`, both},
		{"another's device", `{"resourceType":"Device","patient":{"reference":"Patient/b"}}`, nothing},
		{"a device of nobody", `{"resourceType":"Device"}`, readOnly},
		{"a binary of the patient", `{"resourceType":"Binary","securityContext":{"reference":"Patient/a"}}`, both},
		{"a binary of a record", `{"resourceType":"Binary","securityContext":{"reference":"Observation/x"}}`, needing},
		{"a binary of a device, which may be nobody's", `{"resourceType":"Binary","securityContext":{"reference":"Device/x"}}`, readOnly},
		{"a binary of what everyone reads", `{"resourceType":"Binary","securityContext":{"reference":"Organization/x"}}`, readOnly},
		{"a binary of nothing", `{"resourceType":"Binary"}`, nothing},
		{"a provenance of the patient", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, both},
		{"a provenance of a record", `{"resourceType":"Provenance","target":[{"reference":"Observation/x"}]}`, needing},
		{"a provenance of the patient and a record", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Observation/x"}]}`, needing},
		{"a provenance of the patient and what everyone reads", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Organization/x"}]}`, readOnly},
		{"a provenance of nothing", `{"resourceType":"Provenance"}`, nothing},
		{"a group of the patient", `{"resourceType":"Group","member":[{"entity":{"reference":"Patient/a"}}]}`, both},
		{"a group of two", `{"resourceType":"Group","member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`, nothing},
		{"a document", `{"resourceType":"Bundle","type":"document"}`, nothing},
	} {
		res, err := resource.Parse([]byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		rights := New(Holder{Scope: "patient/*.cruds", Patient: "a"}, NewShared(nil))
		g := rights.Grants[0]
		got := nothing
		switch v := rights.CoversNew(g, res); {
		case v.Covered && len(v.Needed) > 0:
			got = needing
		case v.Covered:
			got = both
		case rights.Covers(g, res).Covered:
			got = readOnly
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestWhole checks that grants over all resources add up, and others do not.
func TestWhole(t *testing.T) {
	t.Parallel()
	both := smart.Read | smart.Update
	clinician := Holder{User: interaction.Reference{Type: "Practitioner", ID: "x"}, Patient: "a"}
	for scope, want := range map[string]bool{
		"user/*.cruds":                                       true,
		"user/*.read user/*.write":                           true,
		"user/*.read user/Observation.write":                 true,
		"user/Observation.r user/Observation.u":              true,
		"user/Observation.r user/Patient.u":                  false,
		"user/Observation.r patient/Observation.u":           false,
		"user/Observation.r user/Observation.u?status=final": false,
	} {
		h := clinician
		h.Scope = scope
		if got := New(h, NewShared(nil)).Whole("Observation", both); got != want {
			t.Errorf("%s: %v", scope, got)
		}
	}
}
