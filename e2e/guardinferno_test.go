package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The guard passes the cases of Inferno's (g)(10) and US Core test kits that concern the resource server.
func (g *guardTest) testInferno(t *testing.T) {
	first := g.world.Patients[0]
	id := g.world.Find(first, "Patient.self").ID
	patient := func(scope string) guardHolder { return guardHolder{scope, id, "Patient/" + id} }
	read := func(t *testing.T, who guardHolder, name string) httpResponse {
		t.Helper()
		return g.send(t, who, http.MethodGet, g.world.Find(first, name).Reference(), "")
	}
	t.Run("unauthorized_access", func(t *testing.T) {
		g.raw(t, g.base, "/fhir/Patient/"+id, "").is(t, http.StatusUnauthorized)
	})
	t.Run("limited_access", func(t *testing.T) {
		who := patient("launch/patient openid fhirUser patient/Patient.read patient/Condition.read patient/Observation.read")
		for _, name := range []string{"Patient.self", "Condition.problem", "Observation.pulse"} {
			read(t, who, name).is(t, http.StatusOK)
		}
		for _, name := range []string{"AllergyIntolerance.nuts", "CarePlan.plan", "Device.own", "DiagnosticReport.lab", "DocumentReference.letter", "Goal.goal", "Immunization.flu", "MedicationRequest.pill", "Procedure.surgery"} {
			read(t, who, name).is(t, http.StatusForbidden)
			resourceType, _, _ := strings.Cut(name, ".")
			g.send(t, who, http.MethodGet, resourceType+"?patient="+id, "").is(t, http.StatusForbidden)
		}
	})
	for name, scope := range map[string]string{"v1_scopes": "patient/*.read", "v2_scopes": "patient/*.rs"} {
		t.Run(name, func(t *testing.T) {
			for _, of := range []string{"Patient.self", "AllergyIntolerance.nuts", "Encounter.visit", "MedicationRequest.pill"} {
				read(t, patient(scope), of).is(t, http.StatusOK)
			}
		})
	}
	t.Run("openid_fhir_user_claim", func(t *testing.T) {
		read(t, guardHolder{"openid fhirUser", "", "Patient/" + id}, "Patient.self").is(t, http.StatusOK)
	})
	for _, group := range usCoreGranular {
		t.Run(group.name, func(t *testing.T) { g.testGranular(t, group) })
	}
	t.Run("token_revocation", g.testRevoked)
}

// usCoreGranular are the two groups of granular scopes in US Core.
var usCoreGranular = []struct {
	name   string
	scopes map[string][]string // categories by resource type
}{
	{"granular_scopes_1", map[string][]string{
		"Condition": {
			"http://terminology.hl7.org/CodeSystem/condition-category|encounter-diagnosis",
			"http://hl7.org/fhir/us/core/CodeSystem/condition-category|health-concern",
		},
		"Observation": {laboratory, "http://terminology.hl7.org/CodeSystem/observation-category|social-history"},
	}},
	{"granular_scopes_2", map[string][]string{
		"Condition": {problemList},
		"Observation": {
			vitalSigns, "http://terminology.hl7.org/CodeSystem/observation-category|survey",
			"http://hl7.org/fhir/us/core/CodeSystem/us-core-category|sdoh",
		},
	}},
}

// testGranular performs the checks of US Core's test kit. A search returns the results of the unrestricted search, filtered by
// the granted categories. Other resources cannot be read.
func (g *guardTest) testGranular(t *testing.T, group struct {
	name   string
	scopes map[string][]string
},
) {
	id := g.world.Find(g.world.Patients[0], "Patient.self").ID
	who := guardHolder{scope: "launch/patient openid fhirUser offline_access patient/Patient.rs", patient: id}
	for resourceType, categories := range group.scopes {
		for _, category := range categories {
			who.scope += " patient/" + resourceType + ".rs?category=" + category
		}
	}
	for resourceType, categories := range group.scopes {
		granted := references{}
		for _, category := range categories {
			for r := range g.oracle.search(t, resourceType+"?category="+url.QueryEscape(category)) {
				granted[r] = true
			}
		}
		searches := []string{"patient=" + id, "patient=Patient/" + id, "patient=" + id + "&_sort=-_lastUpdated"}
		for _, category := range categories {
			searches = append(searches, "patient="+id+"&category="+url.QueryEscape(category))
		}
		for _, search := range searches {
			want := references{}
			for r := range g.oracle.search(t, resourceType+"?"+search) {
				if granted[r] && g.oracle.ofPatient(t, id)[r] {
					want[r] = true
				}
			}
			g.checkComplete(t, guardPrincipal{group.name, who, nil}, resourceType+"?"+search, want)
		}
		for r := range g.oracle.search(t, resourceType+"?patient="+id) {
			want := granted[r] && g.oracle.ofPatient(t, id)[r]
			if a := g.send(t, who, http.MethodGet, r, ""); (a.status == http.StatusOK) != want {
				t.Errorf("%s: %d, want readable %v", r, a.status, want)
			}
		}
	}
}

// testRevoked revokes a token that the gateway issued and checks that the API then returns 401.
func (g *guardTest) testRevoked(t *testing.T) {
	token := g.gateway.userToken(t, "openid", "fhirUser", "user/*.rs").AccessToken
	ask := func() httpResponse {
		a, err := g.trySend(t, token, http.MethodGet, g.world.Patient(g.world.Patients[0]), "")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ask().is(t, http.StatusOK)
	r := newRequest(t, http.MethodPost, g.gateway.issuer+"/oauth2/revoke", url.Values{"token": {token}, "client_id": {"demo-app"}}.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	send(t, g.gateway.client, r).is(t, http.StatusOK)
	ask().is(t, http.StatusUnauthorized)
}
