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
		{"patient/Observation.rs", patient, "Read and search your observations, such as lab results and vital signs"},
		{"patient/Observation.rs", clinician, "Read and search the patient's observations, such as lab results and vital signs"},
		{"patient/*.read", clinician, "Read and search the patient's health records of every kind"},
		{"user/Condition.cruds", clinician, "Read, search, create, change and delete conditions and diagnoses of everybody you have access to"},
		{"patient/SupplyDelivery.d", patient, "Delete your records of type supply delivery"},
		{"patient/Observation.r?category=vital-signs&status=final", patient, "Read your observations, such as lab results and vital signs (only category=vital-signs, status=final)"},
		{"offline_access", patient, "Keep this access while you are not using it"},
		{"claim:given_name", patient, "Your given name"},
		{"demo.read", patient, "The permission “demo.read”"},
	}
	for _, tt := range tests {
		if got := describe(tt.item, tt.user); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.item, got, tt.want)
		}
	}
}
