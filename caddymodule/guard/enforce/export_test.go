package enforce_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
)

// exporting is a gateway before a server that exports. It tells what a kick-off asked for, in asked.
func exporting(t *testing.T, asked *string) *gateway {
	t.Helper()
	g := newGateway(t, records...)
	kickOff := func(w http.ResponseWriter, r *http.Request) {
		*asked, _ = url.QueryUnescape(r.URL.RawQuery)
		if text, _ := io.ReadAll(r.Body); len(text) > 0 {
			*asked = string(text)
		}
		if r.Header.Get("Prefer") != "respond-async" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Location", fhirtest.Address+"/$export-poll-status?_jobId=1")
		w.WriteHeader(http.StatusAccepted)
	}
	g.server.Answers = map[string]http.HandlerFunc{
		"$export": kickOff, "Patient/$export": kickOff, "Group/g1/$export": kickOff, "Group/$export": kickOff, "Patient/a/$export": kickOff,
		"$export-poll-status": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete || r.URL.RawQuery != "_jobId=1" {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			answering(finished)(w, r)
		},
		"Binary/patients": keptFile("application/fhir+ndjson", lines),
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

// keptFile answers with a file as HAPI does, which keeps files as Binaries: with the content if Accept names its media type
// or no format of FHIR's, otherwise with the Binary.
func keptFile(contentType, content string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch accept := r.Header.Get("Accept"); {
		case accept == contentType || !strings.Contains(accept, "json") && !strings.Contains(accept, "xml"):
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, content)
		case strings.Contains(accept, "+json"):
			answering(wrapped(contentType, content))(w, r)
		default:
			w.Header().Set("Content-Type", "application/fhir+xml")
			_, _ = io.WriteString(w, `<Binary xmlns="http://hl7.org/fhir"><contentType value="`+contentType+`"/></Binary>`)
		}
	}
}

// wrapped is a file as a Binary in JSON.
func wrapped(contentType, content string) string {
	return `{"resourceType":"Binary","id":"patients","contentType":"` + contentType + `","data":"` + base64.StdEncoding.EncodeToString([]byte(content)) + `"}`
}

// kickOff is a request for an export.
func kickOff(target, body string) *http.Request {
	r := requestOf(target, body)
	r.Header.Set("Prefer", "respond-async")
	return r
}

func TestExport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, target string
		want                string // what the server was asked; "-" if it was not
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
			asked := "-"
			got := exporting(t, &asked).send(access.Holder{Scope: tt.scope, Patient: "a", User: clinician.User}, kickOff(tt.target, ""))
			if got.StatusCode != tt.status || asked != tt.want {
				text, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, the server was asked %q, want %d, %q: %s", got.StatusCode, asked, tt.status, tt.want, text)
			}
		})
	}
}

// TestExportByPost checks that a body is judged like a query, and written anew of what was judged.
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
			asked := "-"
			got := exporting(t, &asked).send(access.Holder{Scope: "system/Patient.rs"}, kickOff("POST Patient/$export", tt.body))
			if got.StatusCode != tt.status || asked != tt.want {
				t.Errorf("status %d, the server was asked %s, want %d, %s", got.StatusCode, asked, tt.status, tt.want)
			}
		})
	}
}

func TestExportNeedsAsync(t *testing.T) {
	t.Parallel()
	asked := "-"
	if got := exporting(t, &asked).send(access.Holder{Scope: "system/*.rs"}, requestOf("GET $export", "")); got.StatusCode != 400 || asked != "-" {
		t.Errorf("status %d, the server was asked %q", got.StatusCode, asked)
	}
}

// export begins an export, and returns the job's address.
func (g *gateway) export(h access.Holder, target string) string {
	g.t.Helper()
	got := g.send(h, kickOff("GET "+target, ""))
	address := got.Header.Get("Content-Location")
	if got.StatusCode != http.StatusAccepted || !strings.HasPrefix(address, "https://gateway.example/fhir/R4/_job/") {
		g.t.Fatalf("status %d, Content-Location %q", got.StatusCode, address)
	}
	return address
}

// asked is a request for a link.
func asked(method, address string) *http.Request {
	return httptest.NewRequest(method, strings.TrimPrefix(address, "https://gateway.example"), nil)
}
