package flow

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	patient, clinician := &people.User{FHIRUser: "Patient/1"}, &people.User{FHIRUser: "Practitioner/1"}
	tests := []struct {
		item string
		user *people.User
		want string
	}{
		{"openid", clinician, "Know that it is you who signs in"},
		{"patient/Observation.rs", patient, "read and search your observations, such as lab results and vital signs"},
		{"patient/Observation.rs", clinician, "read and search the patient's observations, such as lab results and vital signs"},
		{"patient/*.read", clinician, "read and search the patient's health records of every kind"},
		{"user/Condition.cruds", clinician, "read, search, create, change and delete conditions and diagnoses of everybody you have access to"},
		{"patient/SupplyDelivery.d", patient, "delete your records of type supply delivery"},
		{"patient/Observation.r?category=vital-signs&status=final", patient, "read your observations, such as lab results and vital signs (only category=vital-signs, status=final)"},
		{"offline_access", patient, "Keep this access while you are not using it"},
		{"claim:given_name", patient, "Your given name"},
		{"claim:favourite_colour", patient, "your favourite colour"},
		{"demo.read", patient, "the permission “demo.read”"},
	}
	for _, tt := range tests {
		if got := Describe(tt.item, tt.user).String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.item, got, tt.want)
		}
	}
}
