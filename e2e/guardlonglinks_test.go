package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// manyReports stores 120 patients and, for one other patient, 120 reports. All ids are UUIDs.
func (h fhirAPI) manyReports(t *testing.T, w *testPatients) (patients, reports []string) {
	t.Helper()
	h.load(t, w.records(`Organization {clinic} "name":"x"
		Patient {patient} "name":[{"family":"{family}"}]`))
	var records []guardattack.Record
	for range 120 {
		patients, reports = append(patients, newUUID()), append(reports, newUUID())
		last := len(patients) - 1
		records = append(records,
			guardattack.Record{Type: "Patient", ID: patients[last], JSON: w.text(`{"resourceType":"Patient","id":"` + patients[last] +
				`","managingOrganization":{"reference":"Organization/{clinic}"}}`)},
			guardattack.Record{Type: "DiagnosticReport", ID: reports[last], JSON: w.text(`{"resourceType":"DiagnosticReport","id":"` + reports[last] +
				`","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/{patient}"},"conclusion":"pad"}`)})
	}
	h.load(t, records)
	return patients, reports
}

// finds120 checks that the pages of a search contain 120 records in total, and that next links point to the gateway.
func (g *guarded) finds120(t *testing.T, who guardHolder, search string) {
	t.Helper()
	found := map[string]int{}
	for pages := 0; search != ""; pages++ {
		a, err := g.trySend(t, g.token(t, who), http.MethodGet, search, "")
		if err != nil || a.status != http.StatusOK || pages > 40 {
			t.Fatalf("page %d: %v, %d: %.300s", pages, err, a.status, a.body)
		}
		var page searchPage
		a.decode(t, &page)
		for _, e := range page.Entry {
			found[referenceOf(e.Resource)]++
		}
		if search = page.next(); search != "" && !strings.HasPrefix(search, g.base+"/") {
			t.Fatalf("the next page is at %.200s", search)
		}
	}
	if len(found) != 120 {
		t.Errorf("%d of 120 records", len(found))
	}
}

// TestGuardLongLinks checks that a search for 120 UUIDs (4.4 KB) returns all pages, even if the FHIR server's next links repeat
// the query.
func TestGuardLongLinks(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	patients, reports := h.manyReports(t, w)
	repeating, plain := frontOf(t, h.fhirAPI), frontOf(t, h.fhirAPI)
	repeating.naming, plain.naming = ownAddress(repeating.base), ownAddress(plain.base)
	repeating.repeatQueries()
	for name, f := range map[string]*serverFront{"links that repeat the query": repeating, "HAPI's links": plain} {
		g := startGuarded(t, "links", f.fhirAPI)
		for holder, search := range map[string]string{
			"system":  "Patient?_id=" + strings.Join(patients, ","),
			"user":    "Patient?_id=" + strings.Join(patients, ",") + "&_count=7",
			"patient": "DiagnosticReport?patient=" + w.names["{patient}"] + "&_id=" + strings.Join(reports, ",") + "&_count=50",
		} {
			t.Run(name+", "+holder, func(t *testing.T) { g.finds120(t, holdersByScope(w)[holder], search) })
		}
	}
}
