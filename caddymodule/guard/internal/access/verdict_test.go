package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// localBase is the base URL of the resources in tests.
const localBase = "https://own.example/fhir"

// observationOf returns an Observation of a patient with additional members.
func observationOf(patient, more string) string {
	return `{"resourceType":"Observation","id":"o","subject":{"reference":"Patient/` + patient + `"}` + more + `}`
}

func TestCovers(t *testing.T) {
	t.Parallel()
	const (
		unrestricted = "system/*.rs"
		bound        = "patient/*.cruds"
		lab          = "patient/Observation.rs?category=http://c|laboratory"
		labAll       = "system/Observation.rs?category=http://c|laboratory&status=final"
		category     = `,"category":[{"coding":[{"system":"http://c","code":"laboratory"}]}]`
	)
	for _, tt := range []struct {
		name, scope, resource string
		want                  bool
		needed                string
	}{
		{"unrestricted grant", unrestricted, observationOf("b", ""), true, ""},
		{"a grant for the type", "system/Observation.rs", observationOf("b", ""), true, ""},
		{"a grant for another type", "system/Patient.rs", observationOf("b", ""), false, ""},
		{"own", bound, observationOf("a", ""), true, ""},
		{"another's", bound, observationOf("b", ""), false, ""},
		{"without a patient", bound, `{"resourceType":"Observation","id":"o"}`, false, ""},
		{"by an absolute reference", bound, `{"resourceType":"Observation","subject":{"reference":"` + localBase + `/Patient/a"}}`, true, ""},
		{"of another server's patient", bound, `{"resourceType":"Observation","subject":{"reference":"https://other.example/fhir/Patient/a"}}`, false, ""},
		{"own and another's", bound, observationOf("b", `,"performer":[{"reference":"Patient/a"}]`), true, ""},
		{"own Patient", bound, `{"resourceType":"Patient","id":"a"}`, true, ""},
		{"a Patient who links to the own one", bound, `{"resourceType":"Patient","id":"b","link":[{"other":{"reference":"Patient/a"}}]}`, false, ""},
		{"a type of no compartment", bound, `{"resourceType":"CodeSystem","id":"c"}`, false, ""},

		{"a constraint that holds", lab, observationOf("a", category), true, ""},
		{"a constraint that does not hold", lab, observationOf("a", ""), false, ""},
		{"a constraint that holds for another's", lab, observationOf("b", category), false, ""},
		{"both of two constraints", labAll, observationOf("b", category+`,"status":"final"`), true, ""},
		{"the first of two constraints", labAll, observationOf("b", category), false, ""},
		{"the second of two constraints", labAll, observationOf("b", `,"status":"final"`), false, ""},
		{"alternatives", "system/Observation.rs?status=amended,final", observationOf("b", `,"status":"final"`), true, ""},
		{"a constraint that the type does not have", "system/*.rs?category=http://c|laboratory", `{"resourceType":"Patient","id":"a"}`, false, ""},
		{"a constraint over all types", "system/*.rs?category=http://c|laboratory", observationOf("b", category), true, ""},

		{"a contained record of the patient", bound, observationOf("a", `,"contained":[`+observationOf("a", "")+`]`), true, ""},
		{"a contained record of another", bound, observationOf("a", `,"contained":[`+observationOf("b", "")+`]`), false, ""},
		{"a contained record that another patient has performed", bound, observationOf("a", `,"contained":[`+observationOf("a", `,"performer":[{"reference":"Patient/b"}]`)+`]`), false, ""},
		{"contained record without a patient", bound, observationOf("a", `,"contained":[{"resourceType":"Observation","id":"c"}]`), true, ""},
		{"a contained Patient", bound, observationOf("a", `,"contained":[{"resourceType":"Patient","id":"p1"}]`), true, ""},
		{"a contained Patient, without a scope for Patients", "patient/Observation.rs", observationOf("a", `,"contained":[{"resourceType":"Patient","id":"p1"}]`), false, ""},
		{"two contained records by the id that it names", bound, observationOf("a", `,"contained":[{"resourceType":"Organization","id":"o"},{"resourceType":"Practitioner","id":"o"}],"performer":[{"reference":"#o"}]`), false, ""},
		{"a contained record by the id that it names, beside another", bound, observationOf("a", `,"contained":[{"resourceType":"Organization","id":"o"},{"resourceType":"Practitioner","id":"p"}],"performer":[{"reference":"#o"}]`), true, ""},
		{"a contained subject", bound, observationOf("b", `,"contained":[{"resourceType":"Patient","id":"p1"}],"performer":[{"reference":"Patient/a"},{"reference":"#p1"}]`), false, ""},
		{"a contained record, without a scope for its type", "patient/Observation.rs", observationOf("a", `,"contained":[{"resourceType":"Specimen","id":"s"}]`), false, ""},
		{"a contained Practitioner, without a scope for its type", "patient/Observation.rs", observationOf("a", `,"contained":[{"resourceType":"Practitioner","id":"p"}]`), true, ""},
		{"a contained record outside of the constraint", "patient/Observation.rs?status=final", observationOf("a", `,"status":"final","contained":[{"resourceType":"Observation","id":"c","status":"amended"}]`), false, ""},
		{"a contained Task", bound, observationOf("a", `,"contained":[{"resourceType":"Task","id":"t","for":{"reference":"Patient/a"}}]`), true, ""},
		{"a contained Task for another", bound, observationOf("a", `,"contained":[{"resourceType":"Task","id":"t","for":{"reference":"Patient/b"}}]`), false, ""},
		{"a contained Task for a contained Patient", bound, observationOf("a", `,"contained":[{"resourceType":"Patient","id":"p"},{"resourceType":"Task","id":"t","for":{"reference":"#p"}}]`), false, ""},
		{"a contained record of the patient by the server's address", bound, observationOf("a", `,"contained":[`+observationOf("a", "")[:len(observationOf("a", ""))-1]+`,"performer":[{"reference":"`+localBase+`/Patient/a"}]}]`), true, ""},
		{"contained resource without a type", bound, observationOf("a", `,"contained":[{"id":"c"}]`), false, ""},
		{"a contained record of another, unrestricted grant", unrestricted, observationOf("a", `,"contained":[`+observationOf("b", "")+`]`), true, ""},
		{"contained in a shared resource", bound, `{"resourceType":"Practitioner","id":"p","contained":[` + observationOf("b", "") + `]}`, false, ""},

		{"shared with everyone", bound, `{"resourceType":"Practitioner","id":"p"}`, true, ""},
		{"own device", bound, `{"resourceType":"Device","id":"d","patient":{"reference":"Patient/a"}}`, true, ""},
		{"another's device", bound, `{"resourceType":"Device","id":"d","patient":{"reference":"Patient/b"}}`, false, ""},
		{"unassigned device", bound, `{"resourceType":"Device","id":"d"}`, true, ""},
		{"device with a conditional patient reference", bound, `{"resourceType":"Device","id":"d","patient":{"reference":"Patient?identifier=1"}}`, false, ""},
		{"device with a patient identifier", bound, `{"resourceType":"Device","id":"d","patient":{"identifier":{"value":"1"}}}`, false, ""},
		{"own group", bound, `{"resourceType":"Group","id":"g","member":[{"entity":{"reference":"Patient/a"}}]}`, true, ""},
		{"a group of two", bound, `{"resourceType":"Group","id":"g","member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`, false, ""},
		{"a group of others", bound, `{"resourceType":"Group","id":"g","member":[{"entity":{"reference":"Patient/b"}}]}`, false, ""},
		{"a person who is the patient", bound, `{"resourceType":"Person","id":"p","link":[{"target":{"reference":"Patient/a"}}]}`, true, ""},
		{"a person who is another", bound, `{"resourceType":"Person","id":"p","link":[{"target":{"reference":"Patient/b"}}]}`, false, ""},

		{"a binary of the patient", bound, `{"resourceType":"Binary","id":"b","securityContext":{"reference":"Patient/a"}}`, true, ""},
		{"a binary of another", bound, `{"resourceType":"Binary","id":"b","securityContext":{"reference":"Patient/b"}}`, true, "Patient/b"},
		{"a binary of a record", bound, `{"resourceType":"Binary","id":"b","securityContext":{"reference":"Observation/o"}}`, true, "Observation/o"},
		{"binary without a security context", bound, `{"resourceType":"Binary","id":"b"}`, false, ""},
		{"a binary of another server's record", bound, `{"resourceType":"Binary","id":"b","securityContext":{"reference":"https://other.example/fhir/Observation/o"}}`, false, ""},
		{"binary with an unresolvable security context", bound, `{"resourceType":"Binary","id":"b","securityContext":{"reference":"urn:uuid:1"}}`, false, ""},
		{"binary of a contained resource", bound, `{"resourceType":"Binary","id":"b","securityContext":{"reference":"#o"}}`, false, ""},
		{"a provenance of the patient", bound, `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, true, ""},
		{"a provenance of the patient and another", bound, `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Patient/b"}]}`, true, "Patient/b"},
		{"a provenance of the patient and a record", bound, `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Observation/o"}]}`, true, "Observation/o"},
		{"a provenance of the patient and another server's record", bound, `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"https://other.example/fhir/Observation/o"}]}`, false, ""},
		{"a provenance of a record and of another", bound, `{"resourceType":"Provenance","target":[{"reference":"Observation/o"},{"reference":"Patient/b"}]}`, true, "Observation/o Patient/b"},
		{"a provenance of a practitioner alone", bound, `{"resourceType":"Provenance","target":[{"reference":"Practitioner/p"}]}`, false, ""},
		{"a provenance of the patient, without a scope for Patients", "patient/Provenance.rs", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, false, ""},
		{"a provenance of the patient, with a constraint on Patients", "patient/Provenance.rs patient/Patient.rs?active=true", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, true, "Patient/a"},
		{"a provenance of the patient, with a scope beside the constraint", "patient/Provenance.rs patient/Patient.rs patient/Patient.rs?active=true", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, true, ""},
		{"a binary of the patient, without a scope for Patients", "patient/Binary.rs", `{"resourceType":"Binary","id":"b","securityContext":{"reference":"Patient/a"}}`, false, ""},
		{"a provenance of nothing", bound, `{"resourceType":"Provenance","id":"p"}`, false, ""},
		{"a provenance of too much", bound, `{"resourceType":"Provenance","target":[` + strings.Repeat(`{"reference":"Observation/o"},`, 20) + `{"reference":"Observation/o"}]}`, false, ""},
		{"a provenance of much", bound, `{"resourceType":"Provenance","target":[` + strings.Repeat(`{"reference":"Observation/o"},`, 19) + `{"reference":"Observation/o"}]}`, true, strings.TrimSpace(strings.Repeat("Observation/o ", 20))},
		{"a document", bound, `{"resourceType":"Bundle","id":"b","type":"document"}`, false, ""},

		{"one's own record", "fhirUser", `{"resourceType":"Practitioner","id":"alice"}`, true, ""},
		{"another's of the type", "fhirUser", `{"resourceType":"Practitioner","id":"bob"}`, false, ""},
		{"another type of the id", "fhirUser", `{"resourceType":"Patient","id":"alice"}`, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, g := rightsOf(t, tt.scope, nil)
			got := r.Covers(g, parse(t, tt.resource))
			if got.Covered != tt.want || neededResources(got) != tt.needed {
				t.Errorf("covered %v, needs %q", got.Covered, neededResources(got))
			}
		})
	}
}

func TestCoversNewByScope(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, resource string
		want                  bool
	}{
		{"own", "patient/*.cud", observationOf("a", ""), true},
		{"another's", "patient/*.cud", observationOf("b", ""), false},
		{"own and another's", "patient/*.cud", observationOf("a", `,"performer":[{"reference":"Patient/b"}]`), false},
		{"own and what may be another's", "patient/*.cud", observationOf("a", `,"performer":[{"reference":"Patient?identifier=1"}]`), false},
		{"own and another server's", "patient/*.cud", observationOf("a", `,"performer":[{"reference":"https://other.example/fhir/Patient/a"}]`), false},
		{"own, and one who is about another's", "patient/*.cud", observationOf("a", `,"focus":[{"reference":"Patient/b"}]`), true},
		{"without a patient", "patient/*.cud", `{"resourceType":"Observation","id":"o"}`, false},
		{"own Patient", "patient/*.cud", `{"resourceType":"Patient","id":"a"}`, true},
		{"another Patient", "patient/*.cud", `{"resourceType":"Patient","id":"b"}`, false},
		{"own device", "patient/*.cud", `{"resourceType":"Device","id":"d","patient":{"reference":"Patient/a"}}`, true},
		{"unassigned device", "patient/*.cud", `{"resourceType":"Device","id":"d"}`, false},
		{"a constraint that does not hold", "patient/Observation.cud?status=final", observationOf("a", ""), false},
		{"unrestricted grant", "system/*.cud", observationOf("a", `,"performer":[{"reference":"Patient/b"}]`), true},
		{"a whole grant, another type", "system/Patient.cud", observationOf("a", ""), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, g := rightsOf(t, tt.scope, nil)
			if got := r.CoversNew(g, parse(t, tt.resource)); got.Covered != tt.want {
				t.Errorf("covered %v", got.Covered)
			}
		})
	}
}

func TestSharedRules(t *testing.T) {
	t.Parallel()
	const (
		device       = `{"resourceType":"Device","id":"d"}`
		mine         = `{"resourceType":"Device","id":"d","patient":{"reference":"Patient/a"}}`
		organization = `{"resourceType":"Organization","id":"o"}`
	)
	for _, tt := range []struct {
		name     string
		own      TypeRules
		resource string
		want     bool
	}{
		{"default rule", nil, device, true},
		{"closed", TypeRules{"Device": closedRule}, mine, false},
		{"compartment rule, outside the compartment", TypeRules{"Device": nil}, mine, false},
		{"everyone", TypeRules{"Basic": everyoneRule}, `{"resourceType":"Basic","id":"b"}`, true},
		{"contained, of a closed type", TypeRules{"Specimen": closedRule}, observationOf("a", `,"contained":[{"resourceType":"Specimen","id":"s"}]`), false},
		{"closed, inside the compartment", TypeRules{"Observation": closedRule}, observationOf("a", ""), false},
		{"unassigned, without a patient parameter", TypeRules{"Organization": unassignedRule}, organization, false},
		{"another type's rule", TypeRules{"Device": closedRule}, organization, true},
		{"a Task for the patient", TypeRules{"Task": patientRule}, `{"resourceType":"Task","id":"t","for":{"reference":"Patient/a"},"owner":{"reference":"Patient/b"}}`, true},
		{"a Contract of the patient", TypeRules{"Contract": patientRule}, `{"resourceType":"Contract","id":"c","subject":[{"reference":"Patient/a"}]}`, true},
		{"a Contract of the patient and another", TypeRules{"Contract": patientRule}, `{"resourceType":"Contract","id":"c","subject":[{"reference":"Patient/a"},{"reference":"Patient/b"}]}`, false},
		{"a Task for another", TypeRules{"Task": patientRule}, `{"resourceType":"Task","id":"t","for":{"reference":"Patient/b"},"owner":{"reference":"Patient/a"}}`, false},
		{"a Task for a group", TypeRules{"Task": patientRule}, `{"resourceType":"Task","id":"t","for":{"reference":"Group/a"}}`, false},
		{"Task without a patient", TypeRules{"Task": patientRule}, `{"resourceType":"Task","id":"t"}`, false},
		{"a Task for a patient elsewhere", TypeRules{"Task": patientRule}, `{"resourceType":"Task","id":"t","for":{"reference":"https://other.example/Patient/a"}}`, false},
		{"a Task for a contained patient", TypeRules{"Task": patientRule}, `{"resourceType":"Task","id":"t","contained":[{"resourceType":"Patient","id":"a"}],"for":{"reference":"#a"}}`, false},
		{"a Task, without the rule", nil, `{"resourceType":"Task","id":"t","for":{"reference":"Patient/a"}}`, false},
		{"alone", TypeRules{"Observation": aloneRule}, observationOf("a", `,"performer":[{"reference":"Patient/b"}]`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, g := rightsOf(t, "patient/*.rs", tt.own)
			if got := r.Covers(g, parse(t, tt.resource)); got.Covered != tt.want {
				t.Errorf("covered %v", got.Covered)
			}
		})
	}
	if got := NewTypeRules(nil); got["Device"] != unassignedRule || defaultTypeRules["Basic"] != nil {
		t.Error("a site's rules have changed the defaults")
	}
}

// TestDependencyPermissions checks the permissions on a resource that another resource depends on. If the resource contains or
// carries other resources, it is readable only if scopes cover those too.
func TestDependencyPermissions(t *testing.T) {
	t.Parallel()
	const containing = `,"contained":[{"resourceType":"Specimen","id":"s"}]`
	for _, tt := range []struct {
		scopes, resource string
		want             smart.Permission
	}{
		{"patient/Observation.ru", observationOf("a", ""), smart.Read | smart.Update},
		{"patient/Observation.ru", observationOf("a", containing), 0},
		{"patient/Observation.ru patient/Specimen.r", observationOf("a", containing), smart.Read | smart.Update},
		{"patient/Observation.ru patient/Specimen.c", observationOf("a", containing), smart.Update},
		{"patient/Observation.r patient/Specimen.c", observationOf("a", containing), 0},
		{"patient/Observation.r system/Observation.d", observationOf("a", containing), smart.Delete},
		{"patient/Observation.ru", observationOf("b", ""), 0},
	} {
		r := New(Holder{Scope: tt.scopes, Patient: "a"}, NewTypeRules(nil))
		if got := r.AccessTo(parse(t, tt.resource), "a").Permissions; got != tt.want {
			t.Errorf("%s: permissions %v on %s, want %v", tt.scopes, got, tt.resource, tt.want)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"status", "final", true},
		{"status", "amended", false},
		{"status", "final,", false},
		{"nonsense", "final", false},
		{"code-value-quantity", "a$1", false},
		{"_text", "final", false},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			if got := new(Rights).Matches(smart.Parameter{Name: tt.name, Value: tt.value}, parse(t, observationOf("a", `,"status":"final"`))); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// rightsOf returns the rights of scopes with their launch context, and the grant of the first scope.
func rightsOf(t *testing.T, scopes string, rules TypeRules) (*Rights, Grant) {
	t.Helper()
	r := New(Holder{Scope: scopes, Patient: "a", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}, NewTypeRules(rules))
	if want := len(strings.Fields(scopes)); len(r.Grants) != want {
		t.Fatalf("%d grants, want %d", len(r.Grants), want)
	}
	return r, r.Grants[0]
}

func parse(t *testing.T, text string) resource.Resource {
	t.Helper()
	res, err := resource.Parse([]byte(text), localBase)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// neededResources returns the sorted dependencies of a verdict.
func neededResources(v Verdict) string {
	var all []string
	for _, n := range v.Dependencies {
		all = append(all, n.String())
	}
	slices.Sort(all)
	return strings.Trim(fmt.Sprint(all), "[]")
}

// Types that are shared by default are in no Patient compartment; otherwise, other patients' records would become readable.
func TestSharedTypesAreInNoCompartment(t *testing.T) {
	t.Parallel()
	for resourceType, rule := range defaultTypeRules {
		if params, ok := compartment.PatientParameters(resourceType); rule == everyoneRule && ok {
			t.Errorf("%s is for everyone, and in the compartment of a Patient by %q", resourceType, params)
		}
	}
}

// TestCoversNew checks which resources a grant for patient a permits to write, and which of them it permits to read.
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
		{"without a patient", `{"resourceType":"Observation"}`, nothing},
		{"of two", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient/b"}]}`, readOnly},
		{"of two, one of another server", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"http://other.example/fhir/Patient/b"}]}`, readOnly},
		{"own and a search", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient?identifier=1"}]}`, readOnly},
		{"own, containing another's", `{"resourceType":"Observation","subject":{"reference":"Patient/a"},"contained":[{"resourceType":"Specimen","subject":{"reference":"Patient/b"}}]}`, nothing},
		{"a shared type", `{"resourceType":"Organization","id":"o"}`, readOnly},
		{"a type of no patient", `{"resourceType":"ValueSet","id":"v"}`, nothing},
		{"own device", `{"resourceType":"Device","patient":{"reference":"Patient/a"}}`, both},
		{"another's device", `{"resourceType":"Device","patient":{"reference":"Patient/b"}}`, nothing},
		{"unassigned device", `{"resourceType":"Device"}`, readOnly},
		{"a binary of the patient", `{"resourceType":"Binary","securityContext":{"reference":"Patient/a"}}`, both},
		{"a binary of a record", `{"resourceType":"Binary","securityContext":{"reference":"Observation/x"}}`, needing},
		{"binary of a device that may be unassigned", `{"resourceType":"Binary","securityContext":{"reference":"Device/x"}}`, readOnly},
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
		rights := New(Holder{Scope: "patient/*.cruds", Patient: "a"}, NewTypeRules(nil))
		g := rights.Grants[0]
		got := nothing
		switch v := rights.CoversNew(g, res); {
		case v.Covered && len(v.Dependencies) > 0:
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

// Only grants for all resources of a type are combined.
func TestUnrestrictedGrants(t *testing.T) {
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
		if got := New(h, NewTypeRules(nil)).IsUnrestricted("Observation", both); got != want {
			t.Errorf("%s: %v", scope, got)
		}
	}
}
