package sample

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

var async = []string{"Prefer", "respond-async", "Accept", mediaType}

// pathBelowBase returns the path of a job's or file's URL relative to the base.
func pathBelowBase(t testing.TB, address string) string {
	t.Helper()
	path, ok := strings.CutPrefix(address, base+"/")
	if !ok {
		t.Fatalf("%q is not below the base", address)
	}
	return path
}

// exportOf starts an export and waits until it is complete. It returns the status text and the references of the resources in
// each file of the manifest.
func exportOf(t testing.TB, s *Server, target string) (status string, ids map[string][]string) {
	t.Helper()
	w := send(s, http.MethodGet, target, "", async...)
	if w.Code != http.StatusAccepted || w.Body.Len() > 0 {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	status = pathBelowBase(t, w.Header().Get("Content-Location"))
	if w = send(s, http.MethodGet, status, ""); w.Code != http.StatusAccepted || w.Header().Get("Retry-After") == "" || w.Header().Get("X-Progress") == "" {
		t.Fatalf("at work: %d %v", w.Code, w.Header())
	}
	var m struct {
		TransactionTime, Request string
		RequiresAccessToken      bool
		Output                   []struct {
			Type, URL string
			Count     int
		}
		Error []any
	}
	w = send(s, http.MethodGet, status, "")
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != http.StatusOK || m.Request != base+"/"+target || !m.RequiresAccessToken || m.TransactionTime == "" || m.Error == nil {
		t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	ids = map[string][]string{}
	for _, file := range m.Output {
		w := send(s, http.MethodGet, pathBelowBase(t, file.URL), "", "Accept", "application/fhir+ndjson")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/fhir+ndjson" {
			t.Fatalf("%s: %d %v", file.URL, w.Code, w.Header())
		}
		for line := range strings.Lines(w.Body.String()) {
			var r struct{ ResourceType, ID string }
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.ResourceType != file.Type {
				t.Fatalf("%v: %s", err, line)
			}
			ids[file.Type] = append(ids[file.Type], r.ID)
		}
		if len(ids[file.Type]) != file.Count {
			t.Errorf("%d of %s, not %d", len(ids[file.Type]), file.Type, file.Count)
		}
	}
	return status, ids
}

func TestExport(t *testing.T) {
	t.Parallel()
	const group = "{\"resourceType\":\"Group\",\"id\":\"g\",\n\"type\":\"person\",\"actual\":true,\"member\":[{\"entity\":{\"reference\":\"Patient/2\"}}]}"
	for target, want := range map[string]string{
		"$export": "map[Binary:[note] Group:[g] Observation:[1 2] Patient:[1 2 3] Practitioner:[alice]]",
		"$export?_type=Observation%2CPractitioner":                                   "map[Observation:[1 2] Practitioner:[alice]]",
		"$export?_type=Patient&_outputFormat=ndjson&_since=2026-01-01T00%3A00%3A00Z": "map[Patient:[1 2 3]]",
		"$export?_since=2999-01-01T00%3A00%3A00Z":                                    "map[]",
		"Patient/$export": "map[Group:[g] Observation:[1 2] Patient:[1 2 3]]",
		"Group/g/$export": "map[Group:[g] Observation:[2] Patient:[2]]",
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t)
			if w := send(s, http.MethodPut, "Group/g", group); w.Code != http.StatusCreated {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if _, ids := exportOf(t, s, target); fmt.Sprint(ids) != want {
				t.Errorf("%v, want %s", ids, want)
			}
		})
	}
}

// An export contains the resources that existed when it was started. Its files are removed when it is deleted or when many
// newer exports have been started.
func TestExportEnds(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	status, _ := exportOf(t, s, "$export?_type=Patient")
	file := status + "/Patient.ndjson"
	send(s, http.MethodDelete, "Patient/3", "")
	if w := send(s, http.MethodGet, file, ""); strings.Count(w.Body.String(), "\n") != 3 {
		t.Errorf("after a write: %s", w.Body)
	}
	for _, tt := range []struct {
		method, target string
		status         int
	}{
		{"POST", status, 405}, {"DELETE", file, 405}, {"GET", status + "/Observation.ndjson", 404}, {"GET", status + "/Patient", 404},
		{"GET", "_export/", 404}, {"DELETE", status, 202}, {"GET", status, 404}, {"GET", file, 404}, {"DELETE", status, 404},
	} {
		if w := send(s, tt.method, tt.target, ""); w.Code != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.target, w.Code, tt.status)
		}
	}
	first, _ := exportOf(t, s, "$export")
	for range maxExports {
		exportOf(t, s, "$export")
	}
	if w := send(s, http.MethodGet, first, ""); w.Code != http.StatusNotFound || len(s.Store.exports.jobs) != maxExports {
		t.Errorf("the oldest: %d, of %d", w.Code, len(s.Store.exports.jobs))
	}
}

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for _, tt := range []struct {
		method, target string
		headers        []string
		status         int
	}{
		{"GET", "$export", nil, 400},
		{"GET", "$export?_type=Gadget", async, 400},
		{"GET", "$export?_since=yesterday", async, 400},
		{"GET", "$export?_outputFormat=csv", async, 400},
		{"GET", "$export?_typeFilter=Patient%3Factive%3Dtrue", async, 400},
		{"GET", "Group/9/$export", async, 404},
		{"GET", "Patient/1/$export", async, 404},
		{"GET", "Observation/$export", async, 404},
		{"POST", "$export", async, 501},
	} {
		if w := send(s, tt.method, tt.target, "", slices.Clone(tt.headers)...); w.Code != tt.status || len(s.Store.exports.jobs) > 0 {
			t.Errorf("%s %s: %d, want %d: %s", tt.method, tt.target, w.Code, tt.status, w.Body)
		}
	}
}
