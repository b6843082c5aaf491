package enforce_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
)

// newExportGateway returns a gateway for a server with exports. It stores the query of each kick-off in asked.
func newExportGateway(t *testing.T, query *string) *gateway {
	t.Helper()
	g := newGateway(t, records...)
	kickOff := func(w http.ResponseWriter, r *http.Request) {
		*query, _ = url.QueryUnescape(r.URL.RawQuery)
		if text, _ := io.ReadAll(r.Body); len(text) > 0 {
			*query = string(text)
		}
		if r.Header.Get("Prefer") != "respond-async" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Location", fhirtest.Address+"/$export-poll-status?_jobId=1")
		w.WriteHeader(http.StatusAccepted)
	}
	g.server.Handlers = map[string]http.HandlerFunc{
		"$export": kickOff, "Patient/$export": kickOff, "Group/g1/$export": kickOff, "Group/$export": kickOff, "Patient/a/$export": kickOff,
		"$export-poll-status": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete || r.URL.RawQuery != "_jobId=1" {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			newHandler(finished)(w, r)
		},
		"Binary/patients": storedFile("application/fhir+ndjson", lines),
	}
	return g
}

const (
	finished = `{"transactionTime":"2026-01-01T00:00:00Z","request":"http://backend.internal:8080/fhir/$export","requiresAccessToken":false,
		"output":[{"type":"Patient","url":"` + fhirtest.Address + `/Binary/patients","count":2}],
		"deleted":[{"type":"Bundle","url":"` + fhirtest.Address + `/Binary/deleted"}],
		"error":[{"type":"OperationOutcome","url":"` + fhirtest.Address + `/Binary/errors"}],"link":[{"relation":"next","url":"http://backend.internal:8080/fhir/more"}],"extension":{"secret":"http://backend.internal"}}`
	lines = "{\"resourceType\":\"Patient\",\"id\":\"a\"}\n{\"resourceType\":\"Observation\",\"id\":\"a1\"}\n\n{\"resourceType\":\"Patient\",\"id\":\"b\"}"
)

// storedFile behaves like HAPI, which stores files as Binaries: it returns the content if Accept contains the content's media
// type or no FHIR format, and otherwise the Binary.
func storedFile(contentType, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch accept := r.Header.Get("Accept"); {
		case accept == contentType || !strings.Contains(accept, "json") && !strings.Contains(accept, "xml"):
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, content)
		case strings.Contains(accept, "+json"):
			newHandler(wrapInBinary(contentType, content))(w, r)
		default:
			w.Header().Set("Content-Type", "application/fhir+xml")
			_, _ = io.WriteString(w, `<Binary xmlns="http://hl7.org/fhir"><contentType value="`+contentType+`"/></Binary>`)
		}
	}
}

// wrapInBinary returns a file as a Binary in FHIR JSON.
func wrapInBinary(contentType, content string) string {
	return `{"resourceType":"Binary","id":"patients","contentType":"` + contentType + `","data":"` + base64.StdEncoding.EncodeToString([]byte(content)) + `"}`
}

// kickOff returns a request for an export.
func kickOff(target, body string) *http.Request {
	r := requestOf(target, body)
	r.Header.Set("Prefer", "respond-async")
	return r
}

func TestExport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, target string
		want                string // query received by the server; "-" if there was no request
		status              int
	}{
		{"patient scopes", "patient/Patient.read", "GET $export?_type=Patient", "-", 403},
		{"user scopes", "user/Patient.read", "GET $export?_type=Patient", "-", 403},
		{"user scopes over all", "user/*.cruds", "GET $export", "-", 403},
		{"a context in capitals", "SYSTEM/Patient.read", "GET $export?_type=Patient", "-", 403},
		{"no scopes", "openid", "GET $export", "-", 403},
		{"system beside patient scopes, the system's type", "patient/Observation.read system/Patient.read", "GET $export?_type=Patient", "_type=Patient", 202},
		{"system beside patient scopes, the patient's type", "patient/Observation.read system/Patient.read", "GET $export?_type=Observation", "-", 403},
		{"all types, of SMART 1", "system/*.read", "GET $export", "", 202},
		{"all types, of SMART 2", "system/*.rs", "GET $export", "", 202},
		{"all types, one named", "system/*.rs", "GET $export?_type=Patient", "_type=Patient", 202},
		{"one type, none named", "system/Patient.read", "GET $export", "_type=Patient", 202},
		{"two types, none named", "system/Patient.read system/Observation.rs", "GET $export", "_type=Observation,Patient", 202},
		{"r alone", "system/Patient.r", "GET $export", "-", 403},
		{"s alone", "system/Patient.s", "GET $export", "-", 403},
		{"r alone, on all types", "system/*.r", "GET $export", "-", 403},
		{"r and s in two scopes", "system/Patient.r system/Patient.s", "GET $export", "_type=Patient", 202},
		{"r alone, the type named", "system/Patient.r", "GET $export?_type=Patient", "-", 403},
		{"an empty type", "system/Patient.read", "GET $export?_type=", "_type=Patient", 202},
		{"a list of blanks", "system/Patient.read", "GET $export?_type=%20,%20", "_type=Patient", 202},
		{"the type of the scope", "system/Patient.rs", "GET $export?_type=Patient", "_type=Patient", 202},
		{"a scope for a type in lower case", "system/patient.read", "GET $export?_type=Patient", "-", 403},
		{"a type in lower case", "system/*.rs", "GET $export?_type=patient", "-", 403},
		{"two types, in the client's order", "system/Patient.read system/Observation.rs", "GET $export?_type=Patient,Observation", "_type=Patient,Observation", 202},
		{"two types in two parameters", "system/Patient.read system/Observation.rs", "GET $export?_type=Patient&_type=Observation", "_type=Patient,Observation", 202},
		{"one of two types is missing", "system/Patient.read", "GET $export?_type=Patient,Observation", "-", 403},
		{"a constraint, the type named", "system/Patient.rs?active=true", "GET $export?_type=Patient", "-", 403},
		{"a constraint", "system/Patient.rs?active=true", "GET $export", "-", 403},
		{"of all patients without a scope for them", "system/Observation.read", "GET Patient/$export?_type=Observation", "-", 403},
		{"of all patients", "system/Observation.read system/Patient.read", "GET Patient/$export?_type=Observation", "_type=Observation", 202},
		{"of all patients, none named", "system/Organization.read system/Patient.read", "GET Patient/$export", "_type=Patient", 202},
		{"of all patients, without what names several", "system/Group.read system/List.read system/Patient.read", "GET Patient/$export", "_type=Patient", 202},
		{"of a group without a scope for it", "system/Patient.read", "GET Group/g1/$export?_type=Patient", "-", 403},
		{"of a group", "system/Group.read system/Patient.read", "GET Group/g1/$export?_type=Patient", "_type=Patient", 202},
		{"of a group, none named", "system/Group.read system/Patient.read", "GET Group/g1/$export", "_type=Group,Patient", 202},
		{"of a group, all types", "system/*.rs", "GET Group/g1/$export", "", 202},
		{"of all groups", "system/*.rs", "GET Group/$export", "-", 403},
		{"of one patient", "system/*.rs", "GET Patient/a/$export", "-", 403},
		{"since, in a format", "system/*.rs", "GET $export?_since=2020-01-01T00:00:00Z&_outputFormat=ndjson", "_since=2020-01-01T00:00:00Z&_outputFormat=application/fhir+ndjson", 202},
		{"the format in full", "system/*.rs", "GET $export?_outputFormat=application/fhir%2Bndjson", "_outputFormat=application/fhir+ndjson", 202},
		{"the format with a bare plus sign", "system/*.rs", "GET $export?_outputFormat=application/fhir+ndjson", "_outputFormat=application/fhir+ndjson", 202},
		{"the format abbreviated", "system/*.rs", "GET $export?_outputFormat=application/ndjson", "_outputFormat=application/fhir+ndjson", 202},
		{"another format", "system/*.rs", "GET $export?_outputFormat=text/csv", "-", 400},
		{"a filter by all content", "system/Patient.rs", "GET $export?_typeFilter=Patient%3F_content%3Da", "-", 403},
		{"a filter by a list", "system/Patient.rs", "GET $export?_typeFilter=Patient%3F_list%3Da", "-", 403},
		{"a filter for a type that is not named", "system/Patient.rs system/Observation.rs", "GET $export?_type=Observation&_typeFilter=Patient%3Factive%3Dtrue", "-", 403},
		{"an unknown parameter", "system/*.rs", "GET $export?_exportId=1", "-", 403},
		{"partial manifests", "system/*.rs", "GET $export?allowPartialManifests=true", "-", 403},
		{"a filter", "system/Patient.rs", "GET $export?_typeFilter=Patient%3Factive%3Dtrue%26gender%3Dmale,female", "_typeFilter=Patient?active=true&gender=male,female&_type=Patient", 202},
		{"a filter by another type", "system/Patient.rs", "GET $export?_typeFilter=Observation%3Fstatus%3Dfinal", "-", 403},
		{"a filter by another type behind a comma", "system/Patient.rs", "GET $export?_typeFilter=Patient%3Factive%3Dtrue,Observation%3Fstatus%3Dfinal", "-", 403},
		{"a filter by a chain", "system/Patient.rs", "GET $export?_typeFilter=Patient%3Forganization.name%3Da", "-", 403},
		{"a filter by _has", "system/Patient.rs", "GET $export?_typeFilter=Patient%3F_has:Observation:patient:code%3Da", "-", 403},
		{"a filter by a chain under all types", "system/*.rs", "GET $export?_typeFilter=Patient%3Forganization.name%3Da", "_typeFilter=Patient?organization.name=a", 202},
		{"provenance without a scope for it", "system/Patient.rs", "GET $export?includeAssociatedData=LatestProvenanceResources", "-", 403},
		{"provenance", "system/Patient.rs system/Provenance.rs", "GET $export?_type=Patient&includeAssociatedData=LatestProvenanceResources", "includeAssociatedData=LatestProvenanceResources&_type=Patient", 202},
		{"other data", "system/Patient.rs system/Provenance.rs", "GET $export?includeAssociatedData=_own", "-", 403},
		{"patients of the system", "system/*.rs", "GET $export?patient=Patient/a", "-", 403},
		{"patients of all patients", "system/*.rs", "GET Patient/$export?patient=Patient/a", "patient=Patient/a", 202},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			query := "-"
			got := newExportGateway(t, &query).send(access.Holder{Scope: tt.scope, Patient: "a", User: clinician.User}, kickOff(tt.target, ""))
			if got.StatusCode != tt.status || query != tt.want {
				text, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, request %q, want %d, %q: %s", got.StatusCode, query, tt.status, tt.want, text)
			}
		})
	}
}

// The body of an export by POST is judged like a query and re-serialized from the judged parameters.
func TestExportByPost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body, want string
		status           int
	}{
		{"no type", `{"resourceType":"Parameters"}`, `{"parameter":[{"name":"_type","valueString":"Patient"}],"resourceType":"Parameters"}`, 202},
		{"no body", ``, `{"parameter":[{"name":"_type","valueString":"Patient"}],"resourceType":"Parameters"}`, 202},
		{"the type", `{"resourceType":"Parameters","parameter":[{"name":"_type","valueString":"Patient"}]}`, `{"parameter":[{"name":"_type","valueString":"Patient"}],"resourceType":"Parameters"}`, 202},
		{"patients", `{"resourceType":"Parameters","parameter":[{"name":"patient","valueReference":{"reference":"Patient/a"}}]}`, `{"parameter":[{"name":"patient","valueReference":{"reference":"Patient/a"}},{"name":"_type","valueString":"Patient"}],"resourceType":"Parameters"}`, 202},
		{"another type", `{"resourceType":"Parameters","parameter":[{"name":"_type","valueString":"Observation"}]}`, "-", 403},
		{"a name twice", `{"resourceType":"Parameters","parameter":[{"name":"_type","valueString":"Patient","valueCode":"Observation"}]}`, "-", 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			query := "-"
			got := newExportGateway(t, &query).send(access.Holder{Scope: "system/Patient.rs"}, kickOff("POST Patient/$export", tt.body))
			if got.StatusCode != tt.status || query != tt.want {
				t.Errorf("status %d, request %s, want %d, %s", got.StatusCode, query, tt.status, tt.want)
			}
		})
	}
}

func TestExportNeedsAsync(t *testing.T) {
	t.Parallel()
	query := "-"
	if got := newExportGateway(t, &query).send(access.Holder{Scope: "system/*.rs"}, requestOf("GET $export", "")); got.StatusCode != 400 || query != "-" {
		t.Errorf("status %d, request %q", got.StatusCode, query)
	}
}

// exportedFile returns the URL of the first file in the job's manifest.
func (g *gateway) exportedFile(h access.Holder, job string) string {
	g.t.Helper()
	m := mustDecode[struct{ Output []struct{ URL string } }](g.t, g.send(h, linkRequest("GET", job)))
	return m.Output[0].URL
}

// export starts an export and returns the job's URL.
func (g *gateway) export(h access.Holder, target string) string {
	g.t.Helper()
	got := g.send(h, kickOff("GET "+target, ""))
	address := got.Header.Get("Content-Location")
	if got.StatusCode != http.StatusAccepted || !strings.HasPrefix(address, "https://gateway.example/fhir/R4/_job/") {
		g.t.Fatalf("status %d, Content-Location %q", got.StatusCode, address)
	}
	return address
}

// linkRequest returns a request to a link.
func linkRequest(method, address string) *http.Request {
	return httptest.NewRequest(method, strings.TrimPrefix(address, "https://gateway.example"), nil)
}

func TestExportFile(t *testing.T) {
	t.Parallel()
	all, one := access.Holder{Scope: "system/*.rs"}, access.Holder{Scope: "system/Patient.rs"}
	ofAll := strings.ReplaceAll(lines, "\n\n", "\n") + "\n"
	const patients = "{\"resourceType\":\"Patient\",\"id\":\"a\"}\n{\"resourceType\":\"Patient\",\"id\":\"b\"}\n"
	for _, tt := range []struct {
		name      string
		by, other access.Holder
		accept    string
		method    string
		want      string
		status    int
	}{
		{"of one type", one, one, "", "GET", patients, 200},
		{"of one type, in another format", one, one, "text/plain", "GET", patients, 200},
		{"of all types", all, all, "", "GET", ofAll, 200},
		{"of all types, in another format", all, all, "text/plain", "GET", ofAll, 200},
		{"of one type, in the format of resources", one, one, "application/fhir+json", "GET", patients, 200},
		{"of all types, in the format of resources", all, all, "application/fhir+json", "GET", ofAll, 200},
		{"of all types, in XML", all, all, "application/fhir+xml", "GET", ofAll, 200},
		{"of all types, as libraries ask", all, all, "application/json, text/plain, */*", "GET", ofAll, 200},
		{"of all types, as browsers ask", all, all, "text/html, application/xml;q=0.9, */*;q=0.8", "GET", ofAll, 200},
		{"by another token", one, all, "", "GET", "", 404},
		{"by HEAD", one, one, "", "HEAD", "", 200},
		{"by another method", one, one, "", "POST", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			g := newExportGateway(t, &query)
			file := g.exportedFile(tt.by, g.export(tt.by, "$export"))
			r := linkRequest(tt.method, file)
			if tt.accept != "" {
				r.Header.Set("Accept", tt.accept)
			}
			got := g.send(tt.other, r)
			text, err := io.ReadAll(got.Body)
			if err != nil || got.StatusCode != tt.status || tt.status == 200 && string(text) != tt.want {
				t.Errorf("status %d, %q, %v", got.StatusCode, text, err)
			}
			if tt.status == 200 && got.Header.Get("Content-Type") != "application/fhir+ndjson" {
				t.Errorf("Content-Type %q", got.Header.Get("Content-Type"))
			}
		})
	}
}

// A file that contains anything except resources of its type is withheld.
func TestExportFileWithheld(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		status int
	}{
		{"in XML", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<Binary xmlns="http://hl7.org/fhir"/>`)
		}, 502},
		{"an array", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[]`) }, 502},
		{"a line without a type", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"a"}`) }, 502},
		{"a Binary of something else", newHandler(wrapInBinary("text/plain", lines)), 502},
		{"Binary with invalid content", newHandler(wrapInBinary("ndjson", "<Patient/>")), 502},
		{"gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, 404},
		{"failed", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, 503},
		{"in JSON", newHandler(`{"resourceType":"Binary"}`), 502},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+ndjson")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, lines)
		}, 502},
		{"with a line that is too long", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+ndjson")
			if _, err := io.WriteString(w, `{"resourceType":"Patient","id":"a","language":"`+strings.Repeat("a", 3000)+`"}`); err == nil {
				_, _ = io.WriteString(w, "\n"+lines)
			}
		}, 502},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			for _, scope := range []string{"system/Patient.rs", "system/*.rs"} {
				g, h := newExportGateway(t, &query), access.Holder{Scope: scope}
				file := g.exportedFile(h, g.export(h, "$export"))
				g.server.Handlers["Binary/patients"] = tt.answer
				g.Limits.ResponseBytes = 2000
				got := g.send(h, linkRequest("GET", file))
				if text, _ := io.ReadAll(got.Body); got.StatusCode != tt.status || strings.Contains(string(text), "resourceType") {
					t.Errorf("%s: status %d, want %d: %s", scope, got.StatusCode, tt.status, text)
				}
			}
		})
	}
}

// A file is returned as NDJSON, whatever format the FHIR server uses to store and send it.
func TestExportFileFormats(t *testing.T) {
	t.Parallel()
	content := strings.ReplaceAll(lines, "\n\n", "\n") + "\n"
	for _, contentType := range []string{"application/fhir+ndjson", "application/ndjson", "ndjson"} {
		for name, answer := range map[string]http.HandlerFunc{
			"as its content": storedFile(contentType, content), "as a Binary in JSON": newHandler(wrapInBinary(contentType, content)),
		} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				t.Parallel()
				var query string
				g, h := newExportGateway(t, &query), access.Holder{Scope: "system/*.rs"}
				g.server.Handlers["Binary/patients"] = answer
				file := g.exportedFile(h, g.export(h, "$export?_outputFormat="+url.QueryEscape(contentType)))
				got := g.send(h, linkRequest("GET", file))
				if text, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusOK || string(text) != content || got.Header.Get("Content-Type") != "application/fhir+ndjson" {
					t.Errorf("status %d, %s: %s", got.StatusCode, got.Header.Get("Content-Type"), text)
				}
			})
		}
	}
}

// An unsupported format is ignored if the client permits it (handling=lenient).
func TestExportLenient(t *testing.T) {
	t.Parallel()
	query := "-"
	r := kickOff("GET $export?_outputFormat=text/csv", "")
	r.Header.Set("Prefer", "respond-async, handling=lenient")
	if got := newExportGateway(t, &query).send(access.Holder{Scope: "system/*.rs"}, r); got.StatusCode != http.StatusAccepted || query != "" {
		t.Errorf("status %d, request %q", got.StatusCode, query)
	}
}

// If an error occurs in the middle of a file, the response is aborted, so that clients do not mistake it for complete.
func TestExportFileCut(t *testing.T) {
	t.Parallel()
	var query string
	g, h := newExportGateway(t, &query), access.Holder{Scope: "system/*.rs"}
	g.server.Handlers["Binary/patients"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\"resourceType\":\"Patient\",\"id\":\"a\"}\n<html>\n")
	}
	file := g.exportedFile(h, g.export(h, "$export"))
	defer func() {
		if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
			t.Errorf("the answer ended with %v", got)
		}
	}()
	g.send(h, linkRequest("GET", file))
}

func TestJob(t *testing.T) {
	t.Parallel()
	all := access.Holder{Scope: "system/*.rs"}
	one := access.Holder{Scope: "system/Patient.rs"}
	for _, tt := range []struct {
		name      string
		by, other access.Holder
		method    string
		manifest  string
		status    int
	}{
		{"its status", one, one, "GET", finished, 200},
		{"its status by another token", one, all, "GET", finished, 404},
		{"its status by HEAD", one, one, "HEAD", finished, 200},
		{"its end", one, one, "DELETE", finished, 202},
		{"its end by another token", one, all, "DELETE", finished, 404},
		{"another method", one, one, "POST", finished, 404},
		{"unrequested type", one, one, "GET", strings.Replace(finished, `"Patient"`, `"Observation"`, 1), 403},
		{"any type where all are exported", all, all, "GET", strings.Replace(finished, `"Patient"`, `"Observation"`, 1), 200},
		{"a file elsewhere", one, one, "GET", strings.Replace(finished, fhirtest.Address+"/Binary/patients", "https://store.example/patients", 1), 502},
		{"no manifest", one, one, "GET", `[]`, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text string
			g := newExportGateway(t, &text)
			address := g.export(tt.by, "$export")
			poll := g.server.Handlers["$export-poll-status"]
			g.server.Handlers["$export-poll-status"] = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					newHandler(tt.manifest)(w, r)
					return
				}
				poll(w, r)
			}
			expectStatus(t, g.send(tt.other, linkRequest(tt.method, address)), tt.status)
		})
	}
}

// A sealed link is valid only for its purpose.
func TestLinksAreNotInterchangeable(t *testing.T) {
	t.Parallel()
	var query string
	g, h := newExportGateway(t, &query), access.Holder{Scope: "system/*.rs"}
	job := g.export(h, "$export")
	file := g.exportedFile(h, job)
	for _, tt := range []struct{ name, link string }{
		{"a job as a file", strings.Replace(job, "/_job/", "/_file/", 1)},
		{"a job as a page", strings.Replace(job, "/_job/", "/_page/", 1)},
		{"a file as a job", strings.Replace(file, "/_file/", "/_job/", 1)},
		{"something else", "/fhir/R4/_job/61"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			expectStatus(t, g.send(h, linkRequest("GET", tt.link)), http.StatusNotFound)
		})
	}
}

// No job is reported as started unless the FHIR server's response to the kick-off is valid.
func TestJobRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		status   int
		location string
		want     int
	}{
		{"answered at once", 200, fhirtest.Address + "/job", 400},
		{"without an address", 202, "", 400},
		{"with an address elsewhere", 202, "https://store.example/job", 502},
		{"too many", 429, "", 429},
		{"failed", 500, "", 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			g := newExportGateway(t, &query)
			g.server.Handlers["$export"] = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Location", tt.location)
				w.WriteHeader(tt.status)
			}
			expectStatus(t, g.send(access.Holder{Scope: "system/*.rs"}, kickOff("GET $export", "")), tt.want)
		})
	}
}

// A response for a running job contains only its progress.
func TestJobRunning(t *testing.T) {
	t.Parallel()
	var text string
	g, h := newExportGateway(t, &text), access.Holder{Scope: "system/*.rs"}
	address := g.export(h, "$export")
	g.server.Handlers["$export-poll-status"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Progress", "half")
		w.Header().Set("Retry-After", "5")
		w.Header().Set("Content-Location", fhirtest.Address+"/$export-poll-status?_jobId=1")
		w.WriteHeader(http.StatusAccepted)
	}
	got := g.send(h, linkRequest("GET", address))
	if got.StatusCode != http.StatusAccepted || got.Header.Get("X-Progress") != "half" || got.Header.Get("Retry-After") != "5" || got.Header.Get("Content-Location") != "" {
		t.Errorf("status %d, %v", got.StatusCode, got.Header)
	}
}

// If an export was started without rules, its links get an error as soon as a rule judges each resource.
func TestJobFromBeforeRules(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]int{"deny resource.id == 'b'": http.StatusForbidden, "deny request.id == 'b'": http.StatusOK} {
		var query string
		g, h := newExportGateway(t, &query), access.Holder{Scope: "system/*.rs"}
		job := g.export(h, "$export")
		file := g.exportedFile(h, job)
		g.withRules(rule)
		for _, link := range []string{job, file} {
			if got := g.send(h, linkRequest("GET", link)); got.StatusCode != want {
				t.Errorf("%s: %s: status %d, want %d", rule, link[:40], got.StatusCode, want)
			}
		}
	}
}

// A manifest contains only sealed links and known members.
func TestManifest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, target, rule string
		deleted, errors           int
	}{
		{"of one type", "system/Patient.rs", "Patient/$export?_type=Patient", "allow false", 0, 1},
		{"of all types", "system/*.rs", "$export", "allow false", 1, 1},
		{"where a rule judges each resource", "system/*.rs", "$export", "deny resource.id == 'b'", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			g, h := newExportGateway(t, &query).withRules(tt.rule), access.Holder{Scope: tt.scope}
			text, err := io.ReadAll(g.send(h, linkRequest("GET", g.export(h, tt.target))).Body)
			if err != nil || strings.Contains(string(text), "backend.internal") {
				t.Fatalf("%s, %v", text, err)
			}
			var m struct {
				TransactionTime, Request string
				RequiresAccessToken      bool
				Output, Deleted, Error   []struct{ Type, URL string }
			}
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			if m.TransactionTime != "2026-01-01T00:00:00Z" || m.Request != "https://gateway.example/fhir/R4/"+tt.target || !m.RequiresAccessToken ||
				len(m.Output) != 1 || m.Error == nil || len(m.Error) != tt.errors || len(m.Deleted) != tt.deleted {
				t.Errorf("%s", text)
			}
		})
	}
}
