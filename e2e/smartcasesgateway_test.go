package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	gatewayPatient = "be92a43f-de46-affa-b131-bbf9eea51140"
	gatewayOther   = "patient-non-authorized"

	gatewayObservation = "8d82f8ba-e045-4e43-833e-c8aa4de303a5"
	gatewayEncounter   = "0ed72aff-0275-af43-4a59-c2695f9859d7"
)

// runGateway runs fhir-gateway's checks of patient access. Checks of access lists and custom queries do not apply, because this
// gateway does not have these features.
func (c *smartCases) runGateway(t *testing.T) {
	for _, row := range c.table(t, "gateway") {
		fault := row["note"]
		switch {
		case strings.HasPrefix(fault, "n/a:"):
		case row["checker"] == "PatientAccessChecker" && strings.Contains(row["claims"], "scope="):
			fault = c.gatewayChecks(t, row)
		default:
			fault = "n/a: " + row["checker"]
		}
		c.count(t, "gateway", row["id"], fault)
	}
}

// gatewayChecks sends the request of a row. It returns the fault in the response, or "".
func (c *smartCases) gatewayChecks(t *testing.T, row smartRow) string {
	t.Helper()
	c.storeGateway(t)
	_, scope, _ := strings.Cut(row["claims"], "scope=")
	body := ""
	if row["body"] != "" {
		text, err := os.ReadFile(filepath.Join(c.folder, "fixtures", "fhir-gateway", row["body"]))
		if err != nil {
			t.Fatal(err)
		}
		body = string(text)
	}
	var headers []string
	if strings.HasPrefix(row["request"], "PATCH") {
		headers = []string{"Content-Type", "application/json-patch+json"}
	}
	if strings.HasPrefix(row["request"], "PUT Patient") && body == "" {
		body = `{"resourceType":"Patient","id":"` + gatewayPatient + `","active":true}`
	}
	a := c.request(t, guardHolder{scope, gatewayPatient, ""}, row["request"], body, headers...)
	granted := row["expect"] == "granted" || row["expect"] == "not refused"
	if got := a.status/100 == 2; got != granted || !granted && a.status/100 != 4 {
		return fmt.Sprintf("%s %s as %s: %d, want %s: %.400s", row["request"], row["body"], scope, a.status, row["expect"], a.body)
	}
	return ""
}

// storeGateway stores the patient's Observation and several other patients.
func (c *smartCases) storeGateway(t *testing.T) {
	t.Helper()
	for _, id := range []string{gatewayPatient, gatewayOther, "michael", "bob"} {
		c.server.send(t, http.MethodPut, "Patient/"+id, `{"resourceType":"Patient","id":"`+id+`","name":[{"family":"x"}]}`)
	}
	var all searchPage
	c.server.send(t, http.MethodGet, "Observation?subject="+gatewayPatient, "").decode(t, &all)
	for _, e := range all.Entry {
		c.server.send(t, http.MethodDelete, referenceOf(e.Resource), "")
	}
	subject := `"subject":{"reference":"Patient/` + gatewayPatient + `","display":"x"}`
	c.server.putAll(t, map[string]json.RawMessage{
		"Observation/" + gatewayObservation: json.RawMessage(`{"resourceType":"Observation","id":"` + gatewayObservation + `","status":"final","code":{"text":"x"},` +
			`"valueQuantity":{"value":1},` + subject + `}`),
		"Encounter/" + gatewayEncounter: json.RawMessage(`{"resourceType":"Encounter","id":"` + gatewayEncounter + `","status":"finished","class":{"code":"AMB"},` + subject + `}`),
	})
}
