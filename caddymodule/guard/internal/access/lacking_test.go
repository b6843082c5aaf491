package access

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestLacking is over what a token lacks: each scope that is named would give it, and where none would, none is named.
func TestLacking(t *testing.T) {
	t.Parallel()
	doctor := Holder{Scope: "openid user/Patient.rs", User: practitioner}
	bound := Holder{Scope: "launch/patient patient/Patient.rs", Patient: "a"}
	for _, tt := range []struct {
		name, of   string
		permission smart.Permission
		whole      bool
		holder     Holder
		want       string
	}{
		{"the permission", "Observation", smart.Read, false, bound, "patient/Observation.r"},
		{"two permissions", "Observation", smart.Update | smart.Search, false, bound, "patient/Observation.us"},
		{"on all types", "", smart.Search, false, bound, "patient/*.s"},
		{"on all of a type, for one patient", "Observation", smart.Search, true, bound, ""},
		{"of a type that nobody bound changes", "Practitioner", smart.Update, false, bound, ""},
		{"of a type that everybody reads", "Practitioner", smart.Read, false, bound, "patient/Practitioner.r"},
		{"at the user's level", "Observation", smart.Search, true, doctor, "user/Observation.s"},
		{"at each level, once", "Observation", smart.Read, false, Holder{Scope: "patient/Patient.r user/Patient.r patient/Patient.s", Patient: "a", User: practitioner}, "patient/Observation.r user/Observation.r"},
		{"at the level that suffices", "Observation", smart.Read, true, Holder{Scope: "patient/Patient.r user/Patient.r", Patient: "a", User: practitioner}, "user/Observation.r"},
		{"without a constraint", "Observation", smart.Read, true, Holder{Scope: "system/Observation.r?status=final"}, "system/Observation.r"},
		{"in SMART 2", "Observation", smart.Create, false, Holder{Scope: "system/*.read"}, "system/Observation.c"},
		{"without a patient", "Observation", smart.Read, false, Holder{Scope: "patient/*.s"}, ""},
		{"after the relationship", "Observation", smart.Read, false, Holder{Scope: "patient/*.s", Ended: true}, ""},
		{"by who may use no user scopes", "Observation", smart.Read, false, Holder{Scope: "user/*.s", User: interaction.Reference{Type: "Person", ID: "x"}}, ""},
		{"without resource scopes", "Observation", smart.Read, false, Holder{Scope: "openid fhirUser", User: practitioner}, ""},
		{"what no permission allows", "Observation", 0, false, doctor, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := New(tt.holder, NewShared(nil)).Lacking(tt.of, tt.permission, tt.whole); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
