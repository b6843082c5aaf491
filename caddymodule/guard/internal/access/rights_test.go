package access

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

var (
	practitioner = interaction.Reference{Type: "Practitioner", ID: "alice"}
	patient      = interaction.Reference{Type: "Patient", ID: "a"}
)

// Each kind of scope is bound to the listed patient, if it grants anything.
func TestGrants(t *testing.T) {
	t.Parallel()
	const nothing = "nothing"
	for _, tt := range []struct {
		name   string
		holder Holder
		bound  string // patient, or a text that means no grant
	}{
		{"patient", Holder{Scope: "patient/*.rs", Patient: "a"}, "a"},
		{"patient without one", Holder{Scope: "patient/*.rs"}, nothing},
		{"patient, where only the user has one", Holder{Scope: "patient/*.rs", User: patient, UserPatient: "a"}, nothing},
		{"system", Holder{Scope: "system/*.rs", Patient: "a"}, ""},
		{"user, a Practitioner", Holder{Scope: "user/*.rs", User: practitioner}, ""},
		{"user, a PractitionerRole", Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "PractitionerRole", ID: "r"}}, ""},
		{"user, a Practitioner with a patient in context", Holder{Scope: "user/*.rs", Patient: "a", User: practitioner}, ""},
		{"user, a Patient", Holder{Scope: "user/*.rs", User: patient, UserPatient: "a"}, "a"},
		{"user, a RelatedPerson", Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "RelatedPerson", ID: "r"}, UserPatient: "a"}, "a"},
		{"user, a RelatedPerson without a patient", Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "RelatedPerson", ID: "r"}}, nothing},
		{"user, a Person", Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Person", ID: "p"}}, nothing},
		{"user, unknown", Holder{Scope: "user/*.rs"}, nothing},
		{"user, unknown, with a patient in context", Holder{Scope: "user/*.rs", Patient: "a"}, nothing},
		{"fhirUser", Holder{Scope: "fhirUser", User: practitioner}, ""},
		{"fhirUser, unknown", Holder{Scope: "fhirUser"}, nothing},
		{"openid", Holder{Scope: "openid", User: practitioner}, nothing},
		{"malformed", Holder{Scope: "system/*.sr"}, nothing},
		{"a constraint", Holder{Scope: "system/Observation.rs?status=final"}, ""},
		{"a constraint that the type does not have", Holder{Scope: "system/Patient.rs?category=x"}, nothing},
		{"a constraint that cannot be evaluated", Holder{Scope: "system/Observation.rs?code-value-quantity=a"}, nothing},
		{"one of two constraints that cannot be evaluated", Holder{Scope: "system/Observation.rs?status=final&nonsense=1"}, nothing},
		{"a chain in a constraint", Holder{Scope: "system/Observation.rs?subject.name=x"}, nothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bound := nothing
			if r := New(tt.holder, NewTypeRules(nil)); len(r.Grants) > 0 {
				bound = r.Grants[0].Patient
			}
			if bound != tt.bound {
				t.Errorf("bound to %q, want %q", bound, tt.bound)
			}
		})
	}
}

// TestPermissions checks whether there is a grant for a type and whether it covers all its resources.
func TestPermissions(t *testing.T) {
	t.Parallel()
	const create, read, update, remove, search = smart.Create, smart.Read, smart.Update, smart.Delete, smart.Search
	for _, tt := range []struct {
		scope, resourceType   string
		permission            smart.Permission
		granted, unrestricted bool
		needsUnrestricted     bool
	}{
		{"system/*.rs", "Observation", read, true, true, false},
		{"system/*.rs", "Observation", read | search, true, true, false},
		{"system/*.rs", "Observation", update, false, false, false},
		{"system/*.rs", "Observation", read | update, false, false, false},
		{"system/Observation.rs", "Observation", search, true, true, false},
		{"system/Observation.rs", "Patient", read, false, false, false},
		{"system/Observation.r", "Observation", search, false, false, false},
		{"system/Observation.c", "Observation", create, true, true, false},
		{"system/Observation.d", "Observation", remove, true, true, false},
		{"system/Observation.rs?status=final", "Observation", read, true, false, false},
		{"system/*.rs?status=final", "Observation", read, true, false, false},
		{"patient/*.cruds", "Observation", read | search | create | update | remove, true, false, false},
		{"patient/*.cruds", "Practitioner", read | search, true, false, false},
		{"patient/*.cruds", "Practitioner", read | update, false, false, true},
		{"patient/*.cruds", "Practitioner", create, false, false, true},
		{"patient/*.cruds", "Device", update, true, false, false},
		{"patient/*.cruds", "CodeSystem", read, false, false, true},
		{"system/*.cruds", "CodeSystem", read, true, true, false},
		{"patient/*.cruds system/Observation.r", "Observation", read, true, true, false},
		{"patient/*.cruds system/Observation.r", "Observation", update, true, false, false},
		{"patient/*.cruds system/Observation.r", "Patient", read, true, false, false},
		{"fhirUser", "Practitioner", read, true, false, false},
		{"fhirUser", "Practitioner", update, false, false, false},
		{"fhirUser", "Patient", read, false, false, false},
		{"patient/Observation.r patient/Observation.u", "Observation", read | update, true, false, false},
		{"patient/*.s patient/Observation.r", "Observation", read | search, true, false, false},
		{"patient/*.s patient/Observation.r", "Condition", read | search, false, false, false},
		{"patient/Observation.r patient/Observation.s?status=final", "Observation", read | search, false, false, false},
		{"patient/Observation.r?status=final patient/Observation.s?status=final", "Observation", read | search, true, false, false},
		{"patient/Binary.s", "Binary", search, true, false, true},
	} {
		t.Run(tt.scope+" "+tt.resourceType+" "+tt.permission.String(), func(t *testing.T) {
			t.Parallel()
			r := New(Holder{Scope: tt.scope, Patient: "a", User: practitioner}, NewTypeRules(nil))
			if got := len(r.GrantsFor(tt.resourceType, tt.permission)) > 0; got != tt.granted {
				t.Errorf("granted %v", got)
			}
			if got := r.RequiresUnrestricted(tt.resourceType, tt.permission); got != tt.needsUnrestricted {
				t.Errorf("only whole %v", got)
			}
			if got := r.IsUnrestricted(tt.resourceType, tt.permission); got != tt.unrestricted {
				t.Errorf("whole %v", got)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	r := New(Holder{Scope: "patient/*.cruds", Patient: "a"}, NewTypeRules(TypeRules{"Device": closedRule, "Observation": closedRule}))
	if len(r.GrantsFor("Device", smart.Read))+len(r.GrantsFor("Observation", smart.Read)) != 0 || len(r.GrantsFor("Condition", smart.Read)) != 1 {
		t.Error("a closed type is granted")
	}
}

// TestAll checks the permissions on all resources of all types.
func TestAll(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]string{
		"system/*.rs":                  "rs",
		"system/*.r system/*.s":        "rs",
		"system/Observation.cruds":     "",
		"system/*.rs?status=final":     "",
		"patient/*.cruds":              "",
		"user/*.rs patient/*.cruds":    "rs",
		"fhirUser":                     "",
		"system/*.r system/Patient.cs": "r",
	} {
		if got := New(Holder{Scope: scope, Patient: "a", User: practitioner}, nil).unrestricted[smart.AnyType].String(); got != want {
			t.Errorf("%s: %q, want %q", scope, got, want)
		}
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scope, types string
		anyType      bool
	}{
		{"system/Patient.rs system/Observation.s system/Patient.s", "Patient Observation", false},
		{"system/Patient.r", "", false},
		{"system/Patient.s patient/*.rs", "Patient", true},
		{"system/Patient.s patient/*.r", "Patient", false},
	} {
		types, anyType := New(Holder{Scope: tt.scope, Patient: "a"}, nil).Types(smart.Search)
		if strings.Join(types, " ") != tt.types || anyType != tt.anyType {
			t.Errorf("%s: %v, any %v", tt.scope, types, anyType)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder Holder
		want   string
	}{
		{"nothing", Holder{Scope: "openid patient/*.rs user/*.rs system/*.rs", Patient: "a", User: practitioner}, ""},
		{"a patient", Holder{Scope: "openid patient/*.rs", User: patient, UserPatient: "a"}, "no patient in context"},
		{"a user", Holder{Scope: "user/*.rs", Patient: "a"}, "fhirUser is not a Practitioner"},
		{"a known user", Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Person", ID: "p"}}, "fhirUser is not a Practitioner"},
		{"a patient's user scope", Holder{Scope: "user/*.rs", User: patient, UserPatient: "a"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := New(tt.holder, nil).UnusableScopeReason
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A token that has only a part of a scope does not have that scope.
func TestHasOne(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]bool{"system/*.rs": true, "system/*.cruds": true, "system/ValueSet.rs": false, "system/*.r": false, "openid": false} {
		if got := New(Holder{Scope: scope}, nil).HasAnyScope([]string{"system/*.rs"}); got != want {
			t.Errorf("%s: %v", scope, got)
		}
	}
}

// If policies judge each resource, no type is covered unconditionally, but the same resources are covered.
func TestRightsUnderPolicies(t *testing.T) {
	t.Parallel()
	for _, g := range []Grant{{Type: smart.AnyType, Permission: smart.Read}, {Type: "Patient", Permission: smart.Read}} {
		before := New(Holder{Scope: "system/Group.r"}, NewTypeRules(nil))
		r := before.WithGrant(g).WithoutUnrestricted()
		if r.IsUnrestricted("Patient", smart.Read) || r.IsUnrestricted(smart.AnyType, smart.Read) || before.IsUnrestricted("Patient", smart.Read) {
			t.Errorf("%s: whole", g.Type)
		}
		if len(r.GrantsFor("Patient", smart.Read)) != 1 || !r.Covers(g, resource.Resource{Type: "Patient", ID: "a"}).Covered {
			t.Errorf("%s: not covered", g.Type)
		}
	}
}

// A grant that depends on a policy permits the interaction but covers no resource itself.
func TestByRule(t *testing.T) {
	t.Parallel()
	g := Grant{Type: smart.AnyType, Permission: smart.Read, DependsOnPolicy: true}
	before := New(Holder{}, NewTypeRules(nil))
	r := before.WithGrant(g)
	if len(r.GrantsFor("Patient", smart.Read)) != 1 || len(before.Grants) != 0 {
		t.Errorf("grants %v, before %v", r.Grants, before.Grants)
	}
	res := resource.Resource{Type: "Patient", ID: "a"}
	if r.IsUnrestricted("Patient", smart.Read) || r.Covers(g, res).Covered || r.CoversNew(g, res).Covered {
		t.Error("covers a resource that no rule has judged")
	}
}

// Each scope in a challenge would permit the request. If no scope would permit it, the challenge contains none.
func TestChallengeScopes(t *testing.T) {
	t.Parallel()
	doctor := Holder{Scope: "openid user/Patient.rs", User: practitioner}
	bound := Holder{Scope: "launch/patient patient/Patient.rs", Patient: "a"}
	for _, tt := range []struct {
		name, of     string
		permission   smart.Permission
		unrestricted bool
		holder       Holder
		want         string
	}{
		{"the permission", "Observation", smart.Read, false, bound, "patient/Observation.r"},
		{"two permissions", "Observation", smart.Update | smart.Search, false, bound, "patient/Observation.us"},
		{"on all types", "", smart.Search, false, bound, "patient/*.s"},
		{"on all of a type, for one patient", "Observation", smart.Search, true, bound, ""},
		{"update of a shared type", "Practitioner", smart.Update, false, bound, ""},
		{"read of a shared type", "Practitioner", smart.Read, false, bound, "patient/Practitioner.r"},
		{"at the user's level", "Observation", smart.Search, true, doctor, "user/Observation.s"},
		{"at each level, once", "Observation", smart.Read, false, Holder{Scope: "patient/Patient.r user/Patient.r patient/Patient.s", Patient: "a", User: practitioner}, "patient/Observation.r user/Observation.r"},
		{"at the level that suffices", "Observation", smart.Read, true, Holder{Scope: "patient/Patient.r user/Patient.r", Patient: "a", User: practitioner}, "user/Observation.r"},
		{"without a constraint", "Observation", smart.Read, true, Holder{Scope: "system/Observation.r?status=final"}, "system/Observation.r"},
		{"in SMART 2", "Observation", smart.Create, false, Holder{Scope: "system/*.read"}, "system/Observation.c"},
		{"without a patient", "Observation", smart.Read, false, Holder{Scope: "patient/*.s"}, ""},
		{"after the relationship", "Observation", smart.Read, false, Holder{Scope: "patient/*.s", RelationshipEnded: true}, ""},
		{"by who may use no user scopes", "Observation", smart.Read, false, Holder{Scope: "user/*.s", User: interaction.Reference{Type: "Person", ID: "x"}}, ""},
		{"without resource scopes", "Observation", smart.Read, false, Holder{Scope: "openid fhirUser", User: practitioner}, ""},
		{"no permission", "Observation", 0, false, doctor, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := New(tt.holder, NewTypeRules(nil)).MissingScopes(tt.of, tt.permission, tt.unrestricted); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
