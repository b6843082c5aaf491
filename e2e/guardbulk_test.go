package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// bulkRequests are kick-off requests of Bulk Data clients, with the expected status and the resource types of the files.
var bulkRequests = []struct {
	name, scope, path string
	status            int
	types             string
}{
	{"a group", "system/*.rs", "Group/{group}/$export?_type=Patient,Observation,Condition", 202, "Condition Observation Patient"},
	{"a group, read as SMART 1", "system/*.read", "Group/{group}/$export?_type=Patient,Condition", 202, "Condition Patient"},
	{"a group since", "system/*.rs", "Group/{group}/$export?_type=Patient,Condition&_since=2020-01-01T00:00:00Z", 202, "Condition Patient"},
	{"a group, nothing new", "system/*.rs", "Group/{group}/$export?_type=Patient,Condition&_since=2199-01-01T00:00:00Z", 202, ""},
	{"a group, filtered", "system/*.rs", "Group/{group}/$export?_type=Observation&_typeFilter=Observation%3Fcode%3Dpulse", 202, "Observation"},
	{"a group, two filters", "system/*.rs", "Group/{group}/$export?_type=Observation,Condition&_typeFilter=Observation%3Fcode%3Dpulse,Condition%3Fcode%3Anot%3Dx", 202, "Condition Observation"},
	{"a group, filtered by status and date", "system/*.rs", "Group/{group}/$export?_type=Observation&_typeFilter=Observation%3Fstatus%3Dfinal%26date%3Dge2020", 202, "Observation"},
	{"a group that is absent", "system/*.rs", "Group/{fam}/$export", 404, ""},
	{"patients", "system/*.rs", "Patient/$export?_type=Patient,Condition", 202, "Condition Patient"},
	{"the system", "system/*.rs", "$export?_type=Organization,Practitioner", 202, "Organization Practitioner"},
	{"what scopes name", "system/Patient.rs system/Condition.rs", "Patient/$export", 202, "Condition Patient"},
	{"more than scopes name", "system/Patient.rs system/Condition.rs", "Patient/$export?_type=Observation", 403, ""},
	{"an unknown type", "system/*.rs", "$export?_type=Nonsense", 403, ""},
	{"an unknown format", "system/*.rs", "$export?_type=Patient&_outputFormat=text/csv", 400, ""},
	{"a patient's token", "patient/*.rs", "Patient/$export", 403, ""},
	{"a doctor's token", "user/*.rs", "Patient/$export", 403, ""},
	{"without s", "system/*.r", "Patient/$export", 403, ""},
}

// TestGuardBulkRequests runs exports from kick-off to deletion as specified by Bulk Data 2.0.
func TestGuardBulkRequests(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	h.store(t, w.records(pairedRules[0].before+pairedRecords))
	g := startGuarded(t, "bulk", h.fhirAPI)
	jobs := map[string]string{}
	holder := func(scope string) guardHolder {
		return guardHolder{scope: scope, patient: w.names["{patient}"], fhirUser: w.text("Practitioner/{doctor}")}
	}
	for _, test := range bulkRequests {
		a := g.send(t, holder(test.scope), http.MethodGet, w.text(test.path), "", "Prefer", "respond-async", "Accept", "application/fhir+json")
		if a.status != test.status {
			t.Errorf("%s: %d, want %d: %.300s", test.name, a.status, test.status, a.body)
			continue
		}
		if a.status >= 400 {
			a.isOutcome(t)
			continue
		}
		if jobs[test.name] = a.header.Get("Content-Location"); !strings.HasPrefix(jobs[test.name], g.base+"/") {
			t.Errorf("%s: the job is at %s", test.name, jobs[test.name])
		}
	}
	for _, test := range bulkRequests {
		link, who := jobs[test.name], holder(test.scope)
		if link == "" {
			continue
		}
		var end struct {
			TransactionTime, Request string
			RequiresAccessToken      bool
			Output                   []struct {
				Type, URL string
				Count     *int
			}
			Error *[]struct{ Type, URL string }
		}
		a := g.jobEnd(t, who, link)
		a.decode(t, &end)
		if end.TransactionTime == "" || !strings.HasPrefix(end.Request, g.base+"/") || !end.RequiresAccessToken || end.Error == nil || a.header.Get("Content-Type") == "" {
			t.Errorf("%s: manifest %s", test.name, a.body)
		}
		types := map[string]bool{}
		for _, file := range end.Output {
			types[file.Type] = true
			got := g.send(t, who, http.MethodGet, file.URL, "", "Accept", "application/fhir+ndjson")
			lines := 0
			for line := range strings.Lines(string(got.body)) {
				if lines++; !strings.HasPrefix(referenceOf([]byte(line)), file.Type+"/") {
					t.Errorf("%s: %s has %.200s", test.name, file.Type, line)
				}
			}
			if got.status != http.StatusOK || lines == 0 || file.Count != nil && *file.Count != lines {
				t.Errorf("%s: file of %s: %d with %d lines, count %v", test.name, file.Type, got.status, lines, file.Count)
			}
			if other := g.send(t, guardHolder{scope: "system/Group.rs"}, http.MethodGet, file.URL, ""); other.status != http.StatusNotFound {
				t.Errorf("%s: the file by another token: %d", test.name, other.status)
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(types)), " "); got != test.types {
			t.Errorf("%s: files of %q, want %q", test.name, got, test.types)
		}
		if a := g.send(t, who, http.MethodDelete, link, ""); a.status != http.StatusAccepted && a.status != http.StatusNotFound {
			t.Errorf("%s: the job is deleted with %d", test.name, a.status)
		}
	}
	t.Run("by POST", func(t *testing.T) {
		body := w.text(`{"resourceType":"Parameters","parameter":[{"name":"_type","valueString":"Patient"},{"name":"patient","valueReference":{"reference":"Patient/{patient}"}}]}`)
		a := g.send(t, holder("system/*.rs"), http.MethodPost, "Patient/$export", body, "Prefer", "respond-async")
		if a.status == http.StatusAccepted {
			g.jobEnd(t, holder("system/*.rs"), a.header.Get("Content-Location"))
		} else {
			a.is(t, http.StatusAccepted)
		}
	})
	t.Run("without Prefer", func(t *testing.T) {
		a := g.send(t, holder("system/*.rs"), http.MethodGet, "Patient/$export?_type=Patient", "")
		if a.status/100 == 5 {
			t.Errorf("%d: %s", a.status, a.body)
		}
	})
}
