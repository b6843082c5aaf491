package enforce_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// refused is a request that is refused, and why in words for those who build apps.
type refused struct {
	request, body, header string
	why                   string
	holder                access.Holder
}

// refusals are the texts that apps see. Those without a holder are ofPatient's.
var refusals = []refused{
	{"GET Observation/b", "", "", "It is there, and another patient's. What is not there gets the same.", access.Holder{}},
	{"GET Observation/o", "", "", "", access.Holder{Scope: "patient/Patient.rs", Patient: "a"}},
	{"GET Observation/o", "", "", "The app has a `patient/` scope, but no patient was chosen.", access.Holder{Scope: "patient/*.rs"}},
	{"GET Observation/o", "", "", "It has ended, or is not in effect yet.", access.Holder{Scope: "patient/*.rs", Ended: true}},
	{"GET Observation/o", "", "", "Who the person is decides what `user/` scopes are about.", access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Person", ID: "x"}}},
	{"GET Observation?_filter=status eq final", "", "", "", access.Holder{}},
	{"GET Observation?_list=1", "", "", "", access.Holder{}},
	{"GET Observation?_query=mine", "", "", "", access.Holder{}},
	{"GET Observation?_text=pain", "", "", "Counts and order are over all records.", access.Holder{}},
	{"GET Observation?_contained=both", "", "", "", access.Holder{}},
	{"GET Observation?mine=1", "", "", "A parameter that the guard does not know could ask anything.", access.Holder{}},
	{"GET Observation?subject:below=Patient/a", "", "", "", access.Holder{}},
	{"GET Observation?code:in=1", "", "", "", access.Holder{}},
	{"GET Observation?_sort=subject", "", "", "The order would tell of the Patients.", access.Holder{}},
	{"GET Observation?subject:Patient.name=Adams", "", "", "A chain is a search for Patients, which no scope here allows.", access.Holder{Scope: "patient/Observation.rs", Patient: "a"}},
	{"GET Observation?_getpages=1", "", "", "Links of the FHIR server's own belong to nobody.", access.Holder{}},
	{"GET ?_sort=_lastUpdated", "", "", "Each type is a search of its own, and all are asked for each page.", access.Holder{}},
	{"GET Group?_summary=count", "", "", "The FHIR server would count groups of others, too.", access.Holder{}},
	{"GET Observation/_history", "", "", "What was deleted says no longer whose it was.", access.Holder{}},
	{"POST Observation", decidedObservation("n", "b", "laboratory", ""), "", "", access.Holder{}},
	{"POST Observation", strings.Replace(decidedObservation("n", "a", "laboratory", ""), "Encounter/e", "Encounter/none", 1), "", "", access.Holder{}},
	{"POST Observation", strings.Replace(decidedObservation("n", "a", "laboratory", ""), "Encounter/e", "Encounter?identifier=1", 1), "", "It is a search of the app's own, which must find one.", access.Holder{}},
	{"POST Observation", decidedObservation("n", "a", "laboratory", ""), "", "", access.Holder{Scope: "patient/*.rs", Patient: "a"}},
	{"POST Patient", `{"resourceType":"Patient"}`, "", "", access.Holder{}},
	{"PUT Practitioner/p", `{"resourceType":"Practitioner","id":"p"}`, "", "Everybody's records need it, so nobody bound to one patient changes it.", access.Holder{}},
	{"POST Subscription", observing("Patient?"), "", "What it would send is judged as a search.", observer},
	{"DELETE Observation/o?_cascade=delete", "", "", "", access.Holder{}},
	{"PATCH Observation/o", `[{"op":"test","path":"/status","value":"final"}]`, asJSONPatch, "A test asks what the app may not read.", access.Holder{Scope: "patient/*.u", Patient: "a"}},
	{"PATCH Observation/o", strings.Replace(strings.ReplaceAll(fhirPathPatch, "{type}", "Observation"), "language", "subject", 1), "", "", access.Holder{}},
	{"POST ", fmt.Sprintf(batchOf, "transaction", ownEntry+`,{"request":{"method":"GET","url":"Observation/b"}}`), "", "A transaction is done whole or not at all.", access.Holder{}},
	{"GET $graphql?query={}", "", "", "", access.Holder{}},
	{"GET Observation/$meta", "", "", "", access.Holder{}},
	{"GET $export", "", preferAsync, "", access.Holder{Scope: "system/Observation.r"}},
	{"GET Observation/_history", "", "", "", access.Holder{Scope: "patient/*.rs user/Patient.rs", Patient: "a", User: interaction.Reference{Type: "Practitioner", ID: "p"}}},
	{"GET Observation/$lastn", "", "", "", ofLaboratory},
	{"GET $export", "", preferAsync, "`patient/` and `user/` scopes never export.", userClinician},
	{"GET $export?_type=Patient", "", preferAsync, "", access.Holder{Scope: "system/Observation.rs"}},
	{"GET $export", "", "", "", ofSystem},
}

// refusalTable writes the texts.
func refusalTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| scopes | request | | what the app reads | `scope` | why |\n|---|---|---|---|---|---|\n")
	for _, r := range refusals {
		g := newGateway(t, decided...)
		holder := r.holder
		if holder.Scope == "" {
			holder = ofPatient
		}
		row := decisionRow{request: r.request, body: r.body, header: r.header}
		response := g.sendTo(operatingServer{g.server}, holder, row.requestBy(asker{holder: holder, of: ownRecord, owner: "a"}))
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode < 400 {
			t.Errorf("%s: status %d, %v", r.request, response.StatusCode, err)
		}
		lacking := response.Header.Get("Scope")
		if lacking != "" {
			lacking = "`" + lacking + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %d | %s | %s | %s |\n", holder.Scope, strings.TrimSpace(r.request), response.StatusCode, text, lacking, r.why)
	}
	return strings.ReplaceAll(b.String(), "c|lab", `c\|lab`)
}
