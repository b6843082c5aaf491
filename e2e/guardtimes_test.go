package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// testTimes logs the response times for other patients' records and for absent records, alternating between them. It does not
// fail: TestAsksAlike in package enforce checks that the FHIR server gets the same requests.
func (g *guardTest) testTimes(t *testing.T) {
	pairs := 20
	if *guardMore {
		pairs = 300
	}
	who := guardHolder{scope: "patient/*.rs", patient: g.world.Find('a', "Patient.self").ID}
	for _, test := range []struct{ name, before, after string }{
		{"Observation.pulse", "Observation/", ""},
		{"Patient.self", "Patient/", ""},
		{"Device.own", "Device/", ""},
		{"Binary.letter", "Binary/", ""},
		{"Provenance.pulse", "Provenance/", ""},
		{"Bundle.document", "Bundle/", ""},
		{"List.meds", "List/", ""},
		{"Observation.pulse", "Observation/", "/_history/1"},
		{"Observation.pulse", "Observation/", "/_history"},
		{"Observation.pulse", "Observation?_id=", ""},
	} {
		var there, absent []time.Duration
		slower := 0
		for n := range pairs {
			r := g.world.Find(g.world.Patients[1+n%(len(g.world.Patients)-1)], test.name)
			ids := []string{r.ID, fmt.Sprintf("zqy%04d", n)}
			var took [2]time.Duration
			for k := range 2 { // alternate the order of the two requests
				k = (k + n) % 2
				took[k] = g.timed(t, who, test.before+ids[k]+test.after)
			}
			there, absent = append(there, took[0]), append(absent, took[1])
			if took[0] > took[1] {
				slower++
			}
		}
		t.Logf("%s…%s: there %v, absent %v; slower in %d %% of %d pairs",
			test.before, test.after, median(there), median(absent), 100*slower/pairs, pairs)
	}
}

// timed returns the duration of a request.
func (g *guardTest) timed(t *testing.T, who guardHolder, path string) time.Duration {
	t.Helper()
	began := time.Now()
	a := g.send(t, who, http.MethodGet, path, "")
	took := time.Since(began)
	if len(resourcesIn(a.body)) > 0 {
		t.Errorf("%s is shown: %s", path, a.body)
	}
	return took
}
