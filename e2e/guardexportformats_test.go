package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestGuardExportFormats checks that export files are NDJSON for each of the three format names in Bulk Data 2.0, regardless of
// the Accept header of the download.
func TestGuardExportFormats(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	h.store(t, w.records(pairedRules[1].before+pairedRecords))
	g := startGuarded(t, "formats", h.fhirAPI)
	who := guardHolder{scope: "system/*.rs"}
	jobs := map[string]string{}
	for _, format := range []string{"", "application/fhir+ndjson", "application/ndjson", "ndjson"} {
		a := g.send(t, who, http.MethodGet, w.text("Patient/$export?_type=Observation&_typeFilter="+url.QueryEscape("Observation?code=pulse")+"&_outputFormat="+url.QueryEscape(format)), "", "Prefer", "respond-async")
		if format == "" {
			a = g.send(t, who, http.MethodGet, "Patient/$export?_type=Observation&_typeFilter="+url.QueryEscape("Observation?code=pulse"), "", "Prefer", "respond-async")
		}
		if a.status != http.StatusAccepted {
			t.Errorf("_outputFormat=%s: %d %s", format, a.status, a.body)
			continue
		}
		jobs[format] = a.header.Get("Content-Location")
	}
	for format, job := range jobs {
		var end struct{ Output []struct{ Type, URL string } }
		g.jobEnd(t, who, job).decode(t, &end)
		if len(end.Output) == 0 {
			t.Errorf("_outputFormat=%s: no files", format)
		}
		for _, file := range end.Output {
			for _, accept := range []string{"application/fhir+ndjson", "application/ndjson", "ndjson", "*/*", "application/fhir+json", "text/html, */*;q=0.1", "application/fhir+xml"} {
				a := g.send(t, who, http.MethodGet, file.URL, "", "Accept", accept)
				if a.status == http.StatusNotAcceptable && (accept == "application/fhir+xml" || accept == "application/fhir+json" || accept == "ndjson") {
					continue
				}
				if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "application/") || !strings.Contains(a.header.Get("Content-Type"), "ndjson") {
					t.Errorf("_outputFormat=%s, Accept %s: %d, %s", format, accept, a.status, a.header.Get("Content-Type"))
				}
				for line := range strings.Lines(string(a.body)) {
					if !strings.HasPrefix(referenceOf([]byte(line)), "Observation/") {
						t.Errorf("_outputFormat=%s, Accept %s: line %.100s", format, accept, line)
					}
				}
			}
		}
	}
	for _, format := range []string{"text/csv", "application/xml", "application/vnd.apache.parquet"} {
		a := g.send(t, who, http.MethodGet, "Patient/$export?_type=Observation&_outputFormat="+url.QueryEscape(format), "", "Prefer", "respond-async")
		if a.status/100 != 4 {
			t.Errorf("_outputFormat=%s: %d", format, a.status)
		}
	}
}

// jobEnd polls an export until it is complete and returns the last response.
func (g *guarded) jobEnd(t *testing.T, who guardHolder, status string) httpResponse {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		a := g.send(t, who, http.MethodGet, status, "")
		if a.status != http.StatusAccepted {
			return a.is(t, http.StatusOK)
		}
		if time.Now().After(deadline) {
			t.Fatalf("still at work: %s", a.header.Get("X-Progress"))
		}
	}
}
