package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

// pdf, of Patient/a, holds hello.
const pdf = `{"resourceType":"Binary","id":"pdf","contentType":"application/pdf","securityContext":{"reference":"Patient/a"},"data":"aGVsbG8="}`

// TestBinaryContent checks when a Binary is read as what it holds.
func TestBinaryContent(t *testing.T) {
	t.Parallel()
	kind := func(contentType string) string { return strings.Replace(pdf, "application/pdf", contentType, 1) }
	for _, tt := range []struct {
		name, stored, request, accept string
		contentType                   string // empty: the resource
	}{
		{"nothing accepted in particular", pdf, "GET Binary/pdf", "", "application/pdf"},
		{"anything", pdf, "GET Binary/pdf", "*/*", "application/pdf"},
		{"its own type", pdf, "GET Binary/pdf", "application/pdf", "application/pdf"},
		{"another type", pdf, "GET Binary/pdf", "image/png", "application/pdf"},
		{"a browser", pdf, "GET Binary/pdf", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/pdf"},
		{"a version", pdf, "GET Binary/pdf/_history/1", "", "application/pdf"},
		{"its own type rather", pdf, "GET Binary/pdf", "application/pdf, application/fhir+json;q=0.5", "application/pdf"},
		{"not FHIR", pdf, "GET Binary/pdf", "application/fhir+json;q=0, */*", "application/pdf"},
		{"JSON that is its content", kind("application/json"), "GET Binary/pdf", "application/json", "application/json"},
		{"JSON among anything", kind("application/json"), "GET Binary/pdf", "*/*", "application/json"},
		{"FHIR among anything", kind("application/fhir+json"), "GET Binary/pdf", "*/*", "application/fhir+json"},
		{"a type with a parameter", kind("text/plain; charset=utf-8"), "GET Binary/pdf", "", "text/plain; charset=utf-8"},
		{"no type", kind(""), "GET Binary/pdf", "", "application/octet-stream"},
		{"a type that is two headers", kind(`text/plain\r\nX-A: b`), "GET Binary/pdf", "", "application/octet-stream"},
		{"FHIR", pdf, "GET Binary/pdf", "application/fhir+json", ""},
		{"FHIR or anything", pdf, "GET Binary/pdf", "application/fhir+json, */*", ""},
		{"FHIR as well", pdf, "GET Binary/pdf", "application/pdf, application/fhir+json", ""},
		{"JSON", pdf, "GET Binary/pdf", "application/json", ""},
		{"JSON by parameter", pdf, "GET Binary/pdf?_format=json", "application/pdf", ""},
		{"another type by parameter", pdf, "GET Binary/pdf?_format=application/pdf", "application/fhir+json", "application/pdf"},
		{"FHIR, of FHIR", kind("application/fhir+json"), "GET Binary/pdf", "application/fhir+json", "application/fhir+json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, append(slices.Clone(writable), tt.stored)...)
			method, target, _ := strings.Cut(tt.request, " ")
			r := httptest.NewRequest(method, "/fhir/R4/"+target, nil)
			r.Header.Set("Accept", tt.accept)
			response := g.send(patientA, r)
			body, _ := io.ReadAll(response.Body)
			got, header := response.Header.Get("Content-Type"), response.Header
			switch {
			case response.StatusCode != 200 || header.Get("Etag") == "":
				t.Errorf("status %d, ETag %q", response.StatusCode, header.Get("Etag"))
			case tt.contentType == "" && (!strings.Contains(got, "fhir+json") || !strings.Contains(string(body), `"Binary"`)):
				t.Errorf("%s: %s", got, body)
			case tt.contentType != "" && (got != tt.contentType || string(body) != "hello"):
				t.Errorf("%s: %s", got, body)
			case tt.contentType != "" && (!strings.Contains(header.Get("Content-Security-Policy"), "sandbox") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("X-A") != ""):
				t.Errorf("a browser may run it: %v", header)
			}
		})
	}
}

// TestBinaryContentIsJudged checks that what is read as content is judged before, and nothing else becomes any.
func TestBinaryContentIsJudged(t *testing.T) {
	t.Parallel()
	g := newGateway(t, append(slices.Clone(writable), pdf,
		strings.NewReplacer(`"pdf"`, `"wrong"`, "aGVsbG8=", "%%%").Replace(pdf),
		strings.NewReplacer(`"pdf"`, `"b"`, "Patient/a", "Patient/b").Replace(pdf))...)
	for target, want := range map[string]int{"Binary/b": 404, "Binary/none": 404, "Binary/b1": 404, "Binary/wrong": 502, "Binary/pdf": 200} {
		if got := g.get(patientA, target); got.StatusCode != want || want == 404 && strings.Contains(got.Header.Get("Content-Type"), "pdf") {
			t.Errorf("%s: %d", target, got.StatusCode)
		}
	}
	if got := answered(t, g.submit(patientA, "batch", request("GET", "Binary/pdf")), 1); !strings.Contains(string(got.Entry[0].Resource), `"Binary"`) {
		t.Errorf("an entry of a batch has %s", got.Entry[0].Resource)
	}
	r := httptest.NewRequest(http.MethodHead, "/fhir/R4/Binary/pdf", nil)
	if got := g.send(patientA, r).Header; got.Get("Content-Type") != "application/pdf" || got.Get("Content-Length") != "5" {
		t.Errorf("HEAD: %v", got)
	}
}

// TestBinaryUpload checks that a content is written as the Binary that it stands for.
func TestBinaryUpload(t *testing.T) {
	t.Parallel()
	const own, asPDF = "X-Security-Context: Patient/a", "Content-Type: application/pdf\n"
	ofStaff := access.Holder{Scope: "user/Binary.cruds", User: clinician.User}
	for _, tt := range []writing{
		{"of the patient", patientA, "POST Binary", "hello", asPDF + own, 201, `Binary/new-20="data":"aGVsbG8="`},
		{"of a record of the patient", patientA, "POST Binary", "hello", asPDF + "X-Security-Context: Observation/a1", 201, `Binary/new-20={"reference":"Observation/a1"}`},
		{"of another patient", patientA, "POST Binary", "hello", asPDF + "X-Security-Context: Patient/b", 403, ""},
		{"of nobody", patientA, "POST Binary", "hello", asPDF, 403, ""},
		{"that tries to be more", patientA, "POST Binary", "hello", asPDF + `X-Security-Context: Patient/b"},"securityContext":{"reference":"Patient/a`, 403, ""},
		{"over an own one", patientA, "PUT Binary/pdf", "bye", asPDF + own, 200, `Binary/pdf="data":"Ynll"`},
		{"over another's", patientA, "PUT Binary/b1", "bye", asPDF + own, 404, ""},
		{"over an own one, away", patientA, "PUT Binary/pdf", "bye", asPDF + "X-Security-Context: Patient/b", 403, ""},
		{"text that is XML", patientA, "POST Binary", "<ClinicalDocument/>", "Content-Type: text/xml\n" + own, 201, `Binary/new-20="text/xml"`},
		{"by scopes about all", ofStaff, "POST Binary", "hello", asPDF, 201, `Binary/new-20="data":"aGVsbG8="`},
		{"over what matches", ofStaff, "PUT Binary?_id=pdf", "bye", asPDF + own, 200, `Binary/pdf="data":"Ynll"`},
		{"that is a search by reference", ofStaff, "POST Binary", "hello", asPDF + "X-Security-Context: Patient?name=x", 403, ""},
		{"in FHIR's XML", patientA, "POST Binary", "<Binary/>", "Content-Type: application/fhir+xml\n" + own, 415, ""},
		{"compressed", patientA, "POST Binary", "hello", asPDF + "Content-Encoding: gzip\n" + own, 415, ""},
		{"without a type", patientA, "POST Binary", "hello", "Content-Type: none\n" + own, 415, ""},
		{"too long in base64", patientA, "POST Binary", strings.Repeat("x", 400), asPDF + own, 413, ""},
		{"of another type of resource", patientA, "POST Observation", "hello", asPDF + own, 415, ""},
		{"a search", patientA, "POST Binary/_search", "hello", asPDF + own, 415, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, append(slices.Clone(writable), pdf)...)
			if tt.status == 413 {
				g.Limits = server.Limits{Body: 500}
			}
			tt.checkAt(g)
		})
	}
	g := newGateway(t, writable...)
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Binary", strings.NewReader("hello"))
	r.Header = http.Header{"Content-Type": {"text/plain"}, "X-Security-Context": {"Patient/a", "Patient/b"}}
	if got := g.send(patientA, r).StatusCode; got != 400 {
		t.Errorf("two contexts: %d", got)
	}
}
