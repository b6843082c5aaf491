package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// ownParameters are what a site may define, the server's own among them.
func ownParameters(t *testing.T) (s searchparam.Set) {
	t.Helper()
	for _, d := range []searchparam.Definition{
		{Base: []string{"Patient"}, Code: "race", Type: "token", Expression: "Patient.extension.where(url = 'http://x/race').extension.value.code"},
		{Base: []string{"CareTeam"}, Code: "role", Type: "token", Expression: "CareTeam.participant.role"},
		{Base: []string{"CareTeam"}, Code: "member", Type: "reference", Expression: "CareTeam.participant.member", Target: []string{"Practitioner"}},
		{Base: []string{"Goal"}, Code: "description", Type: "token", Expression: "Goal.description"},
		{Base: []string{"Observation"}, Code: "about", Type: "reference", Expression: "Observation.focus"},
	} {
		if err := s.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var teams = []string{
	`{"resourceType":"Patient","id":"a","name":[{"family":"Adams"}],"extension":[{"url":"http://x/race","extension":[{"url":"ombCategory","valueCoding":{"code":"w"}}]}]}`,
	`{"resourceType":"Patient","id":"b","name":[{"family":"Brown"}],"extension":[{"url":"http://x/race","extension":[{"url":"ombCategory","valueCoding":{"code":"v"}}]}]}`,
	`{"resourceType":"Practitioner","id":"bob","name":[{"family":"Boyd"}]}`,
	`{"resourceType":"CareTeam","id":"ta","status":"active","subject":{"reference":"Patient/a"},"participant":[{"role":[{"coding":[{"code":"doctor"}]}],"member":{"reference":"Practitioner/bob"}},{"member":{"reference":"Patient/b"}}]}`,
	`{"resourceType":"CareTeam","id":"tc","status":"active","subject":{"reference":"Patient/a"},"participant":[{"role":[{"coding":[{"code":"nurse"}]}]}]}`,
	`{"resourceType":"CareTeam","id":"tb","status":"inactive","subject":{"reference":"Patient/b"},"participant":[{"role":[{"coding":[{"code":"doctor"}]}],"member":{"reference":"Practitioner/bob"}}]}`,
	`{"resourceType":"Goal","id":"ga","subject":{"reference":"Patient/a"},"description":{"coding":[{"code":"walk"}],"text":"Walk"}}`,
	`{"resourceType":"Observation","id":"oa","status":"final","subject":{"reference":"Patient/a"},"focus":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Observation","id":"ob","status":"final","subject":{"reference":"Patient/b"},"focus":[{"reference":"Patient/a"}]}`,
}

// What a site defines is judged as R4's parameters are, and leads no further.
func TestOwnParameters(t *testing.T) {
	t.Parallel()
	doctors := access.Holder{Scope: "patient/CareTeam.rs?role=doctor", Patient: "a"}
	own := access.Holder{Scope: "patient/Patient.rs?race=v", Patient: "a"}
	whole := access.Holder{Scope: "user/CareTeam.rs user/Practitioner.rs", User: clinician.User}
	for _, tt := range []searchCase{
		{"a token", patientA, "CareTeam?role=doctor", "CareTeam/ta"},
		{"by another's", patientA, "Patient?race=v", ""},
		{"by one's own", patientA, "Patient?race=w", "Patient/a"},
		{"a modifier", patientA, "CareTeam?role:missing=false", "CareTeam/ta CareTeam/tc"},
		{"a modifier that looks elsewhere", patientA, "CareTeam?member:below=Practitioner/bob", "403"},
		{"a modifier of another kind", patientA, "CareTeam?role:contains=doc", "403"},
		{"of another type", patientA, "Observation?role=doctor", "400"},
		{"none at all", patientA, "CareTeam?rule=doctor", "400"},
		{"a reference to another patient", patientA, "CareTeam?member=Patient/b", ""},
		{"a reference that makes nothing one's own", patientA, "Observation?about=Patient/a", ""},
		{"a reference by its type", patientA, "CareTeam?member:Practitioner=bob", "CareTeam/ta"},
		{"a chain to what is everybody's", patientA, "CareTeam?member.name=boyd", "CareTeam/ta"},
		{"a chain to another patient", patientA, "CareTeam?member:Patient.name=brown", ""},
		{"a chain that names no type and may go anywhere", patientA, "Observation?about.name=brown", "403"},
		{"a chain to another patient, without a scope for it", whole, "CareTeam?member:Patient.name=brown", "403"},
		{"at the end of a chain", patientA, "CareTeam?patient.race=w", "CareTeam/ta CareTeam/tc"},
		{"at the end of a chain, another's", patientA, "CareTeam?patient.race=v", ""},
		{"has", patientA, "Practitioner?_has:CareTeam:member:status=active", "Practitioner/bob"},
		{"has, by another's", patientA, "Practitioner?_has:CareTeam:member:status=inactive", ""},
		{"has, by the parameter", patientA, "Patient?_has:CareTeam:patient:role=doctor", "Patient/a"},
		{"include", patientA, "CareTeam?_include=CareTeam:member", "CareTeam/ta CareTeam/tc Practitioner/bob"},
		{"revinclude of what is everybody's", patientA, "Practitioner?_revinclude=CareTeam:member", "CareTeam/ta Practitioner/bob"},
		{"revinclude over another's", patientA, "Patient?_revinclude=Observation:about", "Patient/a"},
		{"sort", patientA, "CareTeam?_sort=role", "CareTeam/ta CareTeam/tc"},
		{"sort by a reference", patientA, "CareTeam?_sort=member", "403"},
		{"a constraint", doctors, "CareTeam", "CareTeam/ta"},
		{"a constraint that nothing meets", own, "Patient", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := teamGateway(t).foundOrStatus(tt.holder, tt.target); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.target, got, tt.want)
			}
		})
	}
}

func teamGateway(t *testing.T) *gateway {
	t.Helper()
	g := newGateway(t, teams...)
	g.Parameters = ownParameters(t)
	g.server.Parameters = g.Parameters
	return g
}

// The FHIR server's own definition of a reference may go further than the site's: it is not asked to follow it.
func TestOwnReferenceIsNotFollowedByTheServer(t *testing.T) {
	t.Parallel()
	whole := access.Holder{Scope: "user/CareTeam.rs user/Practitioner.rs", User: clinician.User}
	for _, target := range []string{"CareTeam?member.name=boyd", "Practitioner?_has:CareTeam:member:status=active"} {
		g := teamGateway(t)
		g.server.Seen = func(r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "member.") || strings.Contains(r.URL.RawQuery, "_has") {
				t.Errorf("%s: asked %s", target, r.URL)
			}
		}
		if got := g.foundOrStatus(whole, target); !strings.Contains(got, "/") {
			t.Errorf("%s: got %s", target, got)
		}
	}
}

// A patch may not change the elements by which a constraint of a site's own is judged.
func TestOwnConstraintIsNotPatched(t *testing.T) {
	t.Parallel()
	g := teamGateway(t)
	walks := access.Holder{Scope: "patient/Goal.cruds?description=walk", Patient: "a"}
	for element, want := range map[string]int{"description": http.StatusForbidden, "statusReason": http.StatusOK} {
		patch := `{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},{"name":"path","valueString":"Goal.` + element + `"},{"name":"value","valueString":"x"}]}]}`
		r := httptest.NewRequest(http.MethodPatch, "/fhir/R4/Goal/ga", strings.NewReader(patch))
		r.Header.Set("Content-Type", "application/fhir+json")
		if response := g.send(walks, r); response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", element, response.StatusCode, want)
		}
	}
}
