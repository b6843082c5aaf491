package flow

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// An identity provider's option can forward no parameter of apps that is meant for the gateway.
func TestRequestParametersAreNotForwarded(t *testing.T) {
	t.Parallel()
	for _, name := range RequestParameters {
		if people.CheckRequestParameter(name, "") == nil {
			t.Errorf("%s can be forwarded", name)
		}
	}
	for _, name := range []string{"domain_hint", "kc_idp_hint", "hd", "audience"} {
		if err := people.CheckRequestParameter(name, ""); err != nil {
			t.Error(err)
		}
	}
}

// Every parameter read during checks is in RequestParameters and survives rechecks.
func TestRequestParametersAreKept(t *testing.T) {
	t.Parallel()
	read := regexp.MustCompile(`\bp\.Get\("(\w+)"\)`)
	count := 0
	for file, function := range map[string]string{ // function that reads parameters; "" means the entire file
		"request.go":           "",
		"../signin/request.go": `func \(ps \*Parameters\) Parse`,
		"../token/endpoint.go": `func CheckResource`,
	} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if function != "" {
			if code = regexp.MustCompile(`(?s)` + function + `.*?\n}`).Find(code); code == nil {
				t.Errorf("%s has no %s", file, function)
			}
		}
		for _, found := range read.FindAllSubmatch(code, -1) {
			count++
			if name := string(found[1]); !slices.Contains(RequestParameters, name) {
				t.Errorf("%s reads %s, which is not kept", file, name)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d parameters found", count)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	patient, clinician := &people.User{FHIRUser: "Patient/1"}, &people.User{FHIRUser: "Practitioner/1"}
	tests := []struct {
		item string
		user *people.User
		want string
	}{
		{"openid", clinician, "Recognize you when you sign in"},
		{"patient/Observation.rs", patient, "read and search your observations, such as lab results and vital signs"},
		{"patient/Observation.rs", clinician, "read and search the patient’s observations, such as lab results and vital signs"},
		{"patient/*.read", clinician, "read and search the patient’s health records of all kinds"},
		{"user/Condition.cruds", clinician, "read, search, create, change and delete conditions and diagnoses of all patients you can see"},
		{"patient/SupplyDelivery.d", patient, "delete your records of type supply delivery"},
		{"patient/Observation.r?category=vital-signs&status=final", patient, "read your observations, such as lab results and vital signs (only category=vital-signs, status=final)"},
		{"offline_access", patient, "Keep access when you’re not using the app"},
		{"claim:given_name", patient, "Your given name"},
		{"claim:favourite_colour", patient, "your favourite colour"},
		{"demo.read", patient, "“demo.read”"},
	}
	for _, tt := range tests {
		if got := Describe(tt.item, tt.user).String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.item, got, tt.want)
		}
	}
}
