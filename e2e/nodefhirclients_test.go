package e2e

import "testing"

// FHIR clients written for Node can access the records of a patient who has signed in.
func TestNodeFHIRClients(t *testing.T) {
	app := "client node-app {\n\t\t\tredirect_uri " + appCallback + "\n\t\t\tscope " + smartScopes + "\n\t\t}\n\t\t"
	g := startTestGateway(t, "gateway-fhir-clients", "", "client demo-app", app+"client demo-app",
		"fhir_user Practitioner/alice", "fhir_user Patient/p01")
	g.nodeTest(t, "fhirclients.test.mjs")
}
