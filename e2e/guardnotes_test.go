package e2e

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// noteRecords are US Core clinical notes with Binaries without a securityContext. {base} is the gateway's FHIR base URL.
const noteRecords = `
	Organization {clinic} "name":"Clinic"
	Patient {patient} "name":[{"family":"Plain"}]
	Patient {other} "name":[{"family":"Else"}]
	Binary {noteBinary} "contentType":"text/plain","data":"bm90ZQ=="
	Binary {absolute} "contentType":"text/plain","data":"bm90ZQ=="
	Binary {theirs} "contentType":"text/plain","data":"bm90ZQ=="
	Binary {shared} "contentType":"text/plain","data":"bm90ZQ=="
	Binary {unnamed} "contentType":"text/plain","data":"bm90ZQ=="
	Binary {psychotherapy} "contentType":"text/plain","data":"bm90ZQ=="
	Binary {big} "contentType":"application/pdf","data":"bm90ZQ=="
	Binary {written} "contentType":"text/plain","data":"bm90ZQ=="
	DocumentReference {n1} "status":"current",` + clinicalNote + `,"subject":{"reference":"Patient/{patient}"},"content":[{"attachment":{"contentType":"text/plain","url":"Binary/{noteBinary}"}}]
	DocumentReference {n2} "status":"current",` + clinicalNote + `,"subject":{"reference":"Patient/{patient}"},"content":[{"attachment":{"contentType":"text/plain","url":"{base}/Binary/{absolute}"}}]
	DocumentReference {n3} "status":"current",` + clinicalNote + `,"subject":{"reference":"Patient/{other}"},"content":[{"attachment":{"contentType":"text/plain","url":"Binary/{theirs}"}}]
	DocumentReference {n4} "status":"current","category":[{"coding":[{"system":"http://c","code":"psychotherapy"}]}],"subject":{"reference":"Patient/{patient}"},"content":[{"attachment":{"contentType":"text/plain","url":"Binary/{psychotherapy}"}}]
	DocumentReference {n5} "status":"current",` + clinicalNote + `,"subject":{"reference":"Patient/{patient}"},"content":[{"attachment":{"contentType":"application/pdf","url":"Binary/{big}"}}]`

// TestGuardNotes checks that access to a Binary without a securityContext is decided like access to the DocumentReference that
// references it, and that 100 MB are streamed.
func TestGuardNotes(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	for name := range strings.FieldsSeq("absolute theirs shared unnamed psychotherapy big written n1 n2 n3 n4 n5") {
		w.names["{"+name+"}"] = newUUID()
	}
	f := frontOf(t, h.fhirAPI)
	const size = 100 << 20
	f.before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/fhir/Binary/"+w.names["{big}"] || r.Method != http.MethodGet || r.URL.Query().Has("_elements") {
			return false
		}
		rw.Header().Set("ETag", `W/"1"`)
		part := []byte(strings.Repeat("0123456789abcde\n", 1<<12)) // 64 KiB
		if strings.Contains(r.Header.Get("Accept"), "json") && !strings.Contains(r.Header.Get("Accept"), "pdf") {
			rw.Header().Set("Content-Type", "application/fhir+json")
			_, _ = fmt.Fprintf(rw, `{"resourceType":"Binary","id":%q,"meta":{"versionId":"1"},"contentType":"application/pdf","data":"`, w.names["{big}"])
			encoder := base64.NewEncoder(base64.StdEncoding, rw)
			for range size / len(part) {
				if _, err := encoder.Write(part); err != nil {
					return true
				}
			}
			_ = encoder.Close()
			_, _ = io.WriteString(rw, `"}`)
			return true
		}
		rw.Header().Set("Content-Type", "application/pdf")
		rw.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / len(part) {
			if _, err := rw.Write(part); err != nil {
				return true
			}
		}
		return true
	}
	g := startGuarded(t, "notes", f.fhirAPI)
	w.names["{base}"] = g.base
	h.store(t, w.records(noteRecords))
	patient := w.names["{patient}"]
	allTypes, granular := guardHolder{scope: "patient/*.rs", patient: patient}, guardHolder{scope: granularNote, patient: patient}
	writer := guardHolder{scope: "patient/*.cruds", patient: patient}
	for _, test := range []struct {
		name, binary string
		who          guardHolder
		status       int
	}{
		{"own, relative", "{noteBinary}", allTypes, 200},
		{"own, absolute", "{absolute}", allTypes, 200},
		{"another patient's", "{theirs}", allTypes, 404},
		{"without a patient", "{unnamed}", allTypes, 404},
		{"psychotherapy, all scopes", "{psychotherapy}", allTypes, 200},
		{"clinical note, granular", "{noteBinary}", granular, 200},
		{"clinical note, absolute, granular", "{absolute}", granular, 200},
		{"psychotherapy, granular", "{psychotherapy}", granular, 404},
		{"another patient's, granular", "{theirs}", granular, 404},
		{"without the scope for Binary", "{noteBinary}", guardHolder{scope: "patient/DocumentReference.rs", patient: patient}, 403},
		{"without the scope for DocumentReference", "{noteBinary}", guardHolder{scope: "patient/Binary.rs", patient: patient}, 404},
		{"patient of another note", "{noteBinary}", guardHolder{scope: "patient/*.rs", patient: w.names["{other}"]}, 404},
		{"system", "{theirs}", guardHolder{scope: "system/*.rs"}, 200},
	} {
		for _, accept := range []string{"application/fhir+json", "*/*"} {
			a := g.send(t, test.who, http.MethodGet, w.text("Binary/"+test.binary), "", "Accept", accept)
			if a.status != test.status {
				t.Errorf("%s as %s: %d, want %d: %.200s", test.name, accept, a.status, test.status, a.body)
			}
			absent := g.send(t, test.who, http.MethodGet, "Binary/"+newUUID(), "", "Accept", accept)
			if test.status == 404 && w.comparable([]httpResponse{a}) != w.comparable([]httpResponse{absent}) {
				t.Errorf("%s: differs from an absent note: %s", test.name, firstDifference(w.comparable([]httpResponse{a}), w.comparable([]httpResponse{absent})))
			}
			if a.status == 200 && accept == "*/*" && string(a.body) != "note" {
				t.Errorf("%s: content %.100q", test.name, a.body)
			}
		}
	}
	t.Run("a note that the patient writes opens nothing", func(t *testing.T) {
		for _, url := range []string{"Binary/{theirs}", "{base}/Binary/{theirs}", "Binary/{theirs}/_history/1", "Binary/{unnamed}"} {
			g.send(t, writer, http.MethodPost, "DocumentReference", w.text(`{"resourceType":"DocumentReference","status":"current",`+clinicalNote+
				`,"subject":{"reference":"Patient/{patient}"},"content":[{"attachment":{"contentType":"text/plain","url":"`+url+`"}}]}`))
			for _, binary := range []string{"{theirs}", "{unnamed}"} {
				if a := g.send(t, writer, http.MethodGet, w.text("Binary/"+binary), ""); a.status != http.StatusNotFound {
					t.Errorf("after writing %s, %s is %d: %.200s", url, binary, a.status, a.body)
				}
			}
		}
	})
	t.Run("100 MB are streamed", func(t *testing.T) {
		for _, accept := range []string{"*/*", "application/pdf"} {
			before := g.gateway.anonymousMemory(t)
			r := newRequest(t, http.MethodGet, g.base+"/Binary/"+w.names["{big}"], "")
			r.Header.Set("Accept", accept)
			r.Header.Set("Authorization", "Bearer "+g.token(t, allTypes))
			response, err := g.gateway.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			var got, peak int64
			for buffer := make([]byte, 4<<20); err == nil; {
				var n int
				n, err = io.ReadFull(response.Body, buffer)
				got, peak = got+int64(n), max(peak, g.gateway.anonymousMemory(t))
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || got != size {
				t.Errorf("Accept %s: %d, %d bytes", accept, response.StatusCode, got)
			}
			if peak-before > 48<<20 {
				t.Errorf("Accept %s: the gateway's memory grew from %d to %d MiB", accept, before>>20, peak>>20)
			}
			t.Logf("Accept %s: memory %d, at most %d MiB", accept, before>>20, peak>>20)
		}
	})
}

// anonymousMemory returns RssAnon of the gateway process in bytes.
func (g *gateway) anonymousMemory(t *testing.T) int64 {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", g.process.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "RssAnon:"); found {
			kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}
