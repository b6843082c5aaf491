package conformance

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sample"
)

var fhirServerURL = flag.String("fhir", "", "the address of an empty FHIR server to use, which ends with /fhir; default: one in memory")

// The records that the modules look at.
const (
	patientID             = "inferno-ada"
	encounterID           = "inferno-visit"
	practitionerReference = "Practitioner/inferno-alice"
)

const (
	hl7Conditions    = "http://terminology.hl7.org/CodeSystem/condition-category"
	uscoreConditions = "http://hl7.org/fhir/us/core/CodeSystem/condition-category"
	hl7Observations  = "http://terminology.hl7.org/CodeSystem/observation-category"
	uscoreCategories = "http://hl7.org/fhir/us/core/CodeSystem/us-core-category"
)

// categories are the sub-resources of the (g)(10) criterion, of which the patient has one each.
var categories = []struct{ resourceType, system, code string }{
	{"Condition", hl7Conditions, "encounter-diagnosis"},
	{"Condition", uscoreConditions, "health-concern"},
	{"Condition", hl7Conditions, "problem-list-item"},
	{"Observation", hl7Observations, "laboratory"},
	{"Observation", hl7Observations, "social-history"},
	{"Observation", hl7Observations, "vital-signs"},
	{"Observation", hl7Observations, "survey"},
	{"Observation", uscoreCategories, "sdoh"},
}

// record is a resource, and where it is.
type record struct{ resourceType, id, text string }

// newRecord is a record with members besides its type and id.
func newRecord(resourceType, id, members string) record {
	return record{resourceType, id, fmt.Sprintf(`{"resourceType":%q,"id":%q,%s}`, resourceType, id, members)}
}

// records are all records. What others refer to comes first, as some servers need it.
func records() []record {
	const ofPatient = `"subject":{"reference":"Patient/` + patientID + `"}`
	_, practitionerID, _ := strings.Cut(practitionerReference, "/")
	list := []record{
		newRecord("Practitioner", practitionerID, `"name":[{"text":"Alice Adams"}]`),
		newRecord("Patient", patientID, `"name":[{"text":"Adelaide Aster"}]`),
		newRecord("Patient", "inferno-bob", `"name":[{"text":"Bob Birch"}]`),
		newRecord("Condition", "inferno-bobs", `"subject":{"reference":"Patient/inferno-bob"},"code":{"text":"somebody else's"}`),
		newRecord("Encounter", encounterID, `"status":"finished","class":{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode","code":"AMB"},`+ofPatient),
	}
	for _, c := range categories {
		members := fmt.Sprintf(`"category":[{"coding":[{"system":%q,"code":%q}]}],"code":{"text":%q},%s`, c.system, c.code, c.code, ofPatient)
		if c.resourceType == "Observation" {
			members += `,"status":"final"`
		}
		list = append(list, newRecord(c.resourceType, "inferno-"+c.code, members))
	}
	return list
}

// fhirServer is the host and port of a FHIR server with the records.
func fhirServer(t *testing.T) string {
	t.Helper()
	if *fhirServerURL == "" {
		return fhirServerInMemory(t)
	}
	for _, resource := range records() {
		address := *fhirServerURL + "/" + resource.resourceType + "/" + resource.id
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address, strings.NewReader(resource.text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/fhir+json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode/100 != 2 {
			t.Fatalf("%s: status %d", address, response.StatusCode)
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(*fhirServerURL, "http://"), "/fhir")
}

func fhirServerInMemory(t *testing.T) string {
	t.Helper()
	var texts [][]byte
	for _, resource := range records() {
		texts = append(texts, []byte(resource.text))
	}
	store, err := sample.NewStore(texts...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&sample.Server{Store: store, Base: "/fhir", BaseURL: fhirBase})
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
