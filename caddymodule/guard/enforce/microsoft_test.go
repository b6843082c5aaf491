package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// crossing are two observations that each name both patients: one is about b, one about a.
var crossing = append(slices.Clip(records),
	`{"resourceType":"Observation","id":"b-focus-a","status":"final","subject":{"reference":"Patient/b"},"focus":[{"reference":"Patient/a"}]}`,
	`{"resourceType":"Observation","id":"a-focus-b","status":"final","subject":{"reference":"Patient/a"},"focus":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Device","id":"of-b","patient":{"reference":"Patient/b"}}`,
)

// Leaks of Microsoft's FHIR server that were fixed in 2026, each as its pull request describes it.
func TestMicrosoftFHIRServer(t *testing.T) {
	t.Parallel()
	holder := func(scope string) access.Holder {
		return access.Holder{Scope: scope, Patient: "a", User: clinician.User}
	}
	unknown, leaderless := holder("patient/*.rs"), holder("user/*.rs")
	unknown.Patient, leaderless.User = "", access.Holder{}.User
	split := access.Holder{Scope: "system/Patient.s system/Observation.r"}
	testSearches(t, crossing, []searchCase{
		{"5661: another patient's device", patientA, "Device", "Device/a1 Device/free"},
		{"5683: _include of another patient", patientA, "Observation?_id=a-focus-b&_include=Observation:focus", "Observation/a-focus-b"},
		{"5683: _revinclude of another's record", patientA, "Patient?_revinclude=Observation:focus", "Patient/a"},
		{"5683: $includes", patientA, "Patient/$includes?includesCt=1", "403"},
		{"5688: patient scopes without a patient", unknown, "Observation", "403"},
		{"5688: user scopes without fhirUser", leaderless, "Observation", "403"},
		{"5688: user scopes without fhirUser, by _type", leaderless, "?_type=Observation", "403"},
		{"5788: search of a type that may be read", split, "Observation", "403"},
		{"5788: search by _type of a type that may be read", split, "?_type=Observation", "403"},
		{"5788: search of all types", split, "", "Patient/a Patient/b"},
		{"5788: _revinclude of a type that may be read", split, "Patient?_revinclude=Observation:subject", "Patient/a Patient/b"},
		{"5817: a constraint by an unknown parameter", holder("patient/Observation.rs?shoe-size=9"), "Observation", "403"},
		{"5817: the same, for all types", holder("patient/*.rs?shoe-size=9"), "Observation", ""},
	})
	for _, tt := range []struct {
		name, scope, target string
	}{
		{"5674: $export by patient scopes", "patient/*.rs", "$export"},
		{"5674: $export by user scopes", "user/*.rs", "Patient/$export"},
		{"5674: $export by constrained scopes", "system/*.rs?_security=n", "$export"},
		{"5674: patients' records without the scope for Patient", "system/Observation.rs", "Patient/$export?_type=Observation"},
		{"5674: a group's records without the scope for Group", "system/Patient.rs", "Group/g1/$export?_type=Patient"},
		{"5674: types beyond the scopes", "system/Patient.rs", "$export?_type=Patient,Observation"},
		{"5788: read of a type that may be searched", split.Scope, "Patient/a"},
		{"5817: read under a constraint by an unknown parameter", "patient/Observation.rs?shoe-size=9", "Observation/a1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked string
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("Prefer", "respond-async, handling=lenient")
			if got := exporting(t, &asked).send(holder(tt.scope), r); got.StatusCode != http.StatusForbidden || asked != "" {
				t.Errorf("status %d, exported %q", got.StatusCode, asked)
			}
		})
	}
}

// 5817 in front of a server whose search parameter is disabled, so that it ignores the parameter: the constraint of the scope
// still holds.
func TestMicrosoftDisabledParameter(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.server.Answers = map[string]http.HandlerFunc{"Observation": answering(`{"resourceType":"Bundle","type":"searchset","entry":[` +
		`{"fullUrl":"http://backend.internal:8080/fhir/Observation/a1","resource":` + records[3] + `,"search":{"mode":"match"}},` +
		`{"fullUrl":"http://backend.internal:8080/fhir/Observation/a2","resource":` + records[4] + `,"search":{"mode":"match"}}]}`)}
	h := access.Holder{Scope: "patient/Observation.rs?category=laboratory", Patient: "a"}
	if got := strings.Join(g.found(h, "Observation"), " "); got != "Observation/a1" {
		t.Errorf("found %s", got)
	}
}
