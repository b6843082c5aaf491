package scopeoption

import "testing"

func TestSuggest(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]string{
		"openid":                        "",
		"demo.read":                     "",
		"reports.read":                  "",
		"launch/patient":                "",
		"patient/*.rs":                  "",
		"patient/Observation.rs?code=x": "",
		"user/CustomThing.cruds":        "",
		"system/*.read":                 "",
		"ofline_access":                 "offline_access",
		"fhiruser":                      "fhirUser",
		"opnid":                         "openid",
		"launch/pateint":                "launch/patient",
		"patient/Obervation.rs":         "patient/Observation.rs",
		"patient/observation.rs":        "patient/Observation.rs",
		"patients/*.rs":                 "patient/*.rs",
		"patient/*.raed":                "patient/*.read",
		"patient/*.sr":                  "patient/*.rs",
		"patient/*":                     "",
		"api/v1/read":                   "",
	} {
		if got := Suggest(scope); got != want {
			t.Errorf("%s: got %q, want %q", scope, got, want)
		}
	}
}
