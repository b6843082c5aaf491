package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// Attacks that were reported as vulnerabilities of other servers and gateways do not disclose another patient's data.
func (g *guardTest) testReportedVulnerabilities(t *testing.T) {
	first, other := g.world.Patients[0], g.world.Patients[1]
	id := g.world.Find(first, "Patient.self").ID
	of := func(owner byte, name string) guardattack.Record { return g.world.Find(owner, name) }
	patient := func(scope string) guardHolder { return guardHolder{scope: scope, patient: id} }
	all, observations := patient("patient/*.rs"), patient("patient/Observation.rs")
	pulse, his := of(first, "Observation.pulse").ID, of(other, "Patient.self").ID
	for _, test := range []struct {
		name, method, path, body string
		who                      guardHolder
		status                   int // 0 means any status except server errors
	}{
		{"microsoft #5683: an include leaks", "GET", "DiagnosticReport?_id=" + of(first, "DiagnosticReport.mixed").ID + "&_include=DiagnosticReport:result", "", all, 200},
		{"microsoft #5683: a reverse include leaks", "GET", "Practitioner?_id=" + of(first, "Practitioner.doctor").ID + "&_revinclude=Encounter:participant", "", all, 0},
		{"microsoft #5683: $includes leaks", "GET", "Observation/$includes?includesCt=x", "", all, 403},
		{"microsoft #5674: jobs of others", "GET", g.server.job(t), "", all, 403},
		{"microsoft #5674: jobs of others, by whom may export", "GET", g.server.job(t), "", guardHolder{scope: "system/*.rs"}, 403},
		{"microsoft #5674: jobs of others are cancelled", "DELETE", g.server.job(t), "", guardHolder{scope: "system/*.cruds"}, 405},
		{"microsoft #5675: $member-match", "POST", "Patient/$member-match", `{"resourceType":"Parameters"}`, all, 403},
		{"microsoft #5643: modifiers in scopes", "GET", "Observation", "", patient("patient/Observation.rs?status:not=final"), 403},
		{"microsoft #5213: %2f", "GET", "Patient%2f" + his, "", all, 400},
		{"fhir-gateway: PATCH without u", "PATCH", "Observation/" + pulse, `[{"op":"replace","path":"/status","value":"amended"}]`, patient("patient/Observation.rs"), 403},
		{"fhir-gateway: a search in a bundle counted as read", "POST", "", batchOf("GET", "Observation?status=final"), patient("patient/Observation.r"), 200},
		{"HAPI #6065: _has as an oracle", "GET", "Patient?_has:Observation:subject:code=8867-4", "", patient("patient/Patient.rs"), 0},
		{"HAPI #913: devices leak", "GET", "Device?_count=200", "", all, 200},
		{"HAPI #3866: a chain through a denied type", "GET", "Observation?encounter.status=finished", "", observations, 0},
		{"HAPI #6414: category ignored", "GET", "Observation/" + of(first, "Observation.smoking").ID, "", patient("patient/Observation.rs?category=" + laboratory), 404},
		{"LinuxForHealth #2444: List", "GET", "List/" + of(other, "List.meds").ID, "", all, 404},
		{"LinuxForHealth #2444: Provenance", "GET", "Provenance/" + of(first, "Provenance.two").ID, "", all, 404},
		{"Medplum #7641: GraphQL", "GET", "$graphql?query=" + url.QueryEscape("{PatientList{id}}"), "", all, 403},
		{"Medplum #8948: chains", "GET", "Observation?subject:Patient.name=" + his + "m", "", observations, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			as := g.attackers(t, []guardPrincipal{{test.name, test.who, []guardGrant{{permissions: "rs", patient: id}}}})[0]
			run := &attackRun{g: g, t: t, statuses: map[int]int{}, faults: map[string]int{}}
			a := guardattack.Attack{Method: test.method, Path: test.path, Body: test.body}
			if test.method == http.MethodPatch {
				a.Headers = []string{"Content-Type", "application/json-patch+json"}
			}
			got, ok := run.send(as, a)
			if !ok || test.status != 0 && got.status != test.status || got.status >= 500 {
				t.Errorf("%d, want %d: %.300s", got.status, test.status, got.body)
			}
			run.check(as, a, got)
			if strings.Contains(test.name, "counted as read") && len(resourcesIn(got.body)) > 0 {
				t.Errorf("shows %s", got.body)
			}
		})
	}
}

// job starts an export directly at the server and returns the path of its status, which requires no token there.
func (h fhirAPI) job(t *testing.T) string {
	t.Helper()
	a := h.send(t, http.MethodGet, "$export?_type=Organization", "", "Prefer", "respond-async").is(t, http.StatusAccepted)
	path, ok := strings.CutPrefix(a.header.Get("Content-Location"), h.base+"/")
	if !ok {
		t.Fatalf("the job is at %s", a.header.Get("Content-Location"))
	}
	if got := h.send(t, http.MethodGet, path, ""); got.status != http.StatusAccepted && got.status != http.StatusOK {
		t.Fatalf("the job's status is %d", got.status)
	}
	return path
}

// batchOf returns a batch with one request.
func batchOf(method, address string) string {
	return `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"` + method + `","url":"` + address + `"}}]}`
}
