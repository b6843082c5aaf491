package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// pdf is a Binary of Patient/a with the content "hello".
const pdf = `{"resourceType":"Binary","id":"pdf","contentType":"application/pdf","securityContext":{"reference":"Patient/a"},"data":"aGVsbG8="}`

// Only some requests for a Binary return its content instead of the resource.
func TestBinaryContent(t *testing.T) {
	t.Parallel()
	kind := func(contentType string) string { return strings.Replace(pdf, "application/pdf", contentType, 1) }
	for _, tt := range []struct {
		name, stored, request, accept string
		contentType                   string // empty if the resource is expected
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

// A Binary is judged before its content is returned. Resources of other types have no content.
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
	if got := parseBatchResponse(t, g.submit(patientA, "batch", bundleEntry("GET", "Binary/pdf")), 1); !strings.Contains(string(got.Entry[0].Resource), `"Binary"`) {
		t.Errorf("an entry of a batch has %s", got.Entry[0].Resource)
	}
	r := httptest.NewRequest(http.MethodHead, "/fhir/R4/Binary/pdf", nil)
	if got := g.send(patientA, r).Header; got.Get("Content-Type") != "application/pdf" || got.Get("Content-Length") != "5" {
		t.Errorf("HEAD: %v", got)
	}
}

// Uploaded content is written as a Binary.
func TestBinaryUpload(t *testing.T) {
	t.Parallel()
	const own, asPDF = "X-Security-Context: Patient/a", "Content-Type: application/pdf\n"
	ofStaff := access.Holder{Scope: "user/Binary.cruds", User: clinician.User}
	for _, tt := range []writeCase{
		{"of the patient", patientA, "POST Binary", "hello", asPDF + own, 201, `Binary/new-20="data":"aGVsbG8="`},
		{"of a record of the patient", patientA, "POST Binary", "hello", asPDF + "X-Security-Context: Observation/a1", 201, `Binary/new-20={"reference":"Observation/a1"}`},
		{"of another patient", patientA, "POST Binary", "hello", asPDF + "X-Security-Context: Patient/b", 403, ""},
		{"without a patient", patientA, "POST Binary", "hello", asPDF, 403, ""},
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
				g.Limits = fhirserver.Limits{BodyBytes: 500}
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

// documentReference returns a DocumentReference with an attachment at url.
func documentReference(id, category, subject, more, url string) string {
	return `{"resourceType":"DocumentReference","id":"` + id + `","status":"current","category":[{"coding":[{"code":"` + category + `"}]}],"subject":{"reference":"` + subject + `"}` +
		more + `,"content":[{"attachment":{"contentType":"text/plain","url":"` + url + `"}}]}`
}

const (
	// plain is a Binary as HAPI stores it, without a securityContext.
	plain = `{"resourceType":"Binary","id":"n","contentType":"text/plain","data":"aGVsbG8="}`

	notesOnly = "patient/DocumentReference.rs?category=clinical-note patient/Binary.rs"
)

// A Binary without a securityContext is readable through some documents that refer to it.
func TestBinaryByReferrer(t *testing.T) {
	t.Parallel()
	many := make([]string, 21)
	for n := range many {
		many[n] = documentReference(fmt.Sprint("d", n), "clinical-note", "Patient/a", "", "Binary/n")
	}
	for _, tt := range []struct {
		name, scope string
		documents   []string
		status      int
	}{
		{"a relative address", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"with a slash", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "/Binary/n")}, 200},
		{"the gateway's address", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "https://gateway.example/fhir/R4/Binary/n")}, 200},
		{"the server's address", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", fhirtest.Address+"/Binary/n")}, 200},
		{"another server's address", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "https://other.example/fhir/Binary/n")}, 404},
		{"another Binary", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n2")}, 404},
		{"no document", "patient/*.rs", nil, 404},
		{"another patient's", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/b", "", "Binary/n")}, 404},
		{"referenced for no patient", "patient/*.rs", []string{documentReference("d", "clinical-note", "Group/g", "", "Binary/n")}, 404},
		{"two of the patient's", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n"), documentReference("e", "other", "Patient/a", "", "/Binary/n")}, 200},
		{"the patient's and another patient's", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n"), documentReference("e", "other", "Patient/b", "", "/Binary/n")}, 404},
		{"another patient's, with the patient as author", "patient/*.rs", []string{documentReference("d", "clinical-note", "Patient/b", `,"author":[{"reference":"Patient/a"}]`, "Binary/n")}, 404},
		{"of a contained patient", "patient/*.rs", []string{documentReference("d", "clinical-note", "#p", `,"contained":[{"resourceType":"Patient","id":"p"}],"author":[{"reference":"Patient/a"}]`, "Binary/n")}, 404},
		{"too many", "patient/*.rs", many, 404},
		{"as many as are judged", "patient/*.rs", many[:20], 200},
		{"a covered category", notesOnly, []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"another category", notesOnly, []string{documentReference("d", "psychotherapy", "Patient/a", "", "Binary/n")}, 404},
		{"a covered category and another", notesOnly, []string{documentReference("d", "psychotherapy", "Patient/a", "", "Binary/n"), documentReference("e", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"no scope for documents", "patient/Binary.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"a scope to search for documents", "patient/Binary.rs patient/DocumentReference.s", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"a scope for documents of patient c", "patient/Binary.rs user/DocumentReference.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"a scope for all documents", "patient/Binary.rs system/DocumentReference.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"a scope for all documents, another patient's", "patient/Binary.rs system/DocumentReference.rs", []string{documentReference("d", "clinical-note", "Patient/b", "", "Binary/n")}, 404},
		{"a constraint on the Binary", "patient/Binary.rs?_id=other patient/DocumentReference.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"no scope for Binary", "patient/DocumentReference.rs", []string{documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")}, 403},
		{"a scope for all Binaries", "system/Binary.rs", nil, 200},
	} {
		for _, sends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sends content %v", tt.name, sends), func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, append(slices.Clone(tt.documents), plain)...)
				g.server.SendsContent = sends
				h := access.Holder{Scope: tt.scope, Patient: "a", User: interaction.Reference{Type: "Patient", ID: "c"}, UserPatient: "c"}
				for _, accept := range []string{"", "application/fhir+json"} {
					r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Binary/n", nil)
					r.Header.Set("Accept", accept)
					got := g.send(h, r)
					body, _ := io.ReadAll(got.Body)
					if got.StatusCode != tt.status || tt.status == 200 && accept == "" && string(body) != "hello" && tt.scope != "system/Binary.rs" {
						t.Errorf("Accept %q: %d %s", accept, got.StatusCode, body)
					}
				}
				for target, want := range map[string]int{"Binary/n/_history/1": 404, "Binary/n/_history": 404} {
					if got := g.get(h, target).StatusCode; got == 200 && tt.scope != "system/Binary.rs" {
						t.Errorf("%s: %d, want %d", target, got, want)
					}
				}
			})
		}
	}
}

// A document does not make a Binary readable that has a securityContext or that a policy denies.
func TestBinaryContextDecides(t *testing.T) {
	t.Parallel()
	for context, want := range map[string]int{
		`{"reference":"Patient/b"}`: 404, `{"reference":"Observation/b1"}`: 404, `{"display":"x"}`: 404, `{}`: 404, `{"reference":"urn:uuid:1"}`: 404, `{"reference":"Patient/a"}`: 200,
	} {
		text := strings.Replace(plain, `"data"`, `"securityContext":`+context+`,"data"`, 1)
		for _, sends := range []bool{false, true} {
			g := newGateway(t, append(slices.Clone(records), text, documentReference("d", "clinical-note", "Patient/a", "", "Binary/n"))...)
			g.server.SendsContent = sends
			if got := g.get(patientA, "Binary/n").StatusCode; got != want {
				t.Errorf("%s: %d, want %d", context, got, want)
			}
		}
	}
	for rule, want := range map[string]int{
		"deny resource.resourceType == 'Binary'": 404, "deny resource.resourceType == 'DocumentReference'": 404, "deny resource.status == 'x'": 200,
	} {
		g := newGateway(t, plain, documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")).withRules(rule)
		if got := g.get(patientA, "Binary/n").StatusCode; got != want {
			t.Errorf("%s: %d, want %d", rule, got, want)
		}
	}
}

// A client bound to patient a cannot write a DocumentReference to a Binary that it may not read, whatever the URL's spelling.
func TestAttachment(t *testing.T) {
	t.Parallel()
	secured := func(id, context string) string {
		return `{"resourceType":"Binary","id":"` + id + `","contentType":"text/plain","securityContext":{"reference":"` + context + `"},"data":"aGVsbG8="}`
	}
	stored := append(slices.Clone(records), plain, secured("own", "Patient/a"), secured("record", "Observation/a1"), secured("other", "Patient/b"),
		strings.Replace(plain, `"n"`, `"named"`, 1), strings.Replace(plain, `"n"`, `"psych"`, 1), strings.Replace(plain, `"n"`, `"his"`, 1),
		documentReference("d", "clinical-note", "Patient/a", "", "Binary/named"), documentReference("p", "psychotherapy", "Patient/a", "", "Binary/psych"), documentReference("h", "clinical-note", "Patient/b", "", "Binary/his"),
		documentReference("w", "clinical-note", "Patient/a", "", "https://elsewhere.example/x.pdf"))
	writer := "patient/DocumentReference.cruds?category=clinical-note patient/Binary.cruds patient/Patient.rs patient/Observation.rs"
	for url, want := range map[string]bool{
		"Binary/own": true, "/Binary/own": true, "https://gateway.example/fhir/R4/Binary/own": true, "Binary/own/_history/1": true, "Binary/record": true, "Binary/named": true,
		"https://elsewhere.example/doc.pdf": true, "https://elsewhere.example/a%20b.pdf": true, "urn:oid:1.2": true,

		"Binary/n": false, "/Binary/n": false, "https://gateway.example/fhir/R4/Binary/n": false, fhirtest.Address + "/Binary/n": false, "https://any.example/fhir/Binary/n": false,
		"Binary/n/_history/1": false, "Binary/n ": false, " Binary/n": false, "Binary/n\\t": false, "Bina\\u0000ry/n": false, "\\u0042inary/n": false, "Binary\\/n": false,
		"Binary%2Fn": false, "%42inary/n": false, "binary/n": false, "Binary/n?x=1": false, "Binary/n#x": false, "//gateway.example/fhir/R4/Binary/n": false, "./Binary/n": false,
		"Binary/other": false, "Binary/psych": false, "Binary/his": false, "Binary/none": false, "Binary/../Binary/n": false, "Binary/": false, "fhir/Binary/n": false,
	} {
		text := documentReference("w", "clinical-note", "Patient/a", "", url)
		twice := strings.Replace(text, `"content":[`, `"content":[{"attachment":{"url":"Binary/own"}},`, 1)
		for _, request := range []struct{ line, body, header string }{
			{"POST DocumentReference", text, ""},
			{"POST DocumentReference", twice, ""},
			{"POST DocumentReference", text, "If-None-Exist: _id=none"},
			{"PUT DocumentReference/w", text, ""},
			{"PUT DocumentReference?_id=w", text, ""},
			{"PATCH DocumentReference/w", `[{"op":"replace","path":"/content/0/attachment/url","value":"` + url + `"}]`, "Content-Type: application/json-patch+json"},
			{"PATCH DocumentReference/w", `[{"op":"add","path":"/content/-","value":{"attachment":{"url":"` + url + `"}}}]`, "Content-Type: application/json-patch+json"},
			{"PATCH DocumentReference?_id=w", `[{"op":"replace","path":"/content","value":[{"attachment":{"url":"` + url + `"}}]}]`, "Content-Type: application/json-patch+json"},
			{"POST ", `{"resourceType":"Bundle","type":"batch","entry":[` + entryWithResource("PUT", "DocumentReference/w", text) + `]}`, ""},
			{"POST ", `{"resourceType":"Bundle","type":"transaction","entry":[` + entryWithResource("PUT", "DocumentReference/w", text) + `]}`, ""},
			{"POST ", `{"resourceType":"Bundle","type":"transaction","entry":[` + entryWithResource("POST", "DocumentReference", text) + `]}`, ""},
		} {
			g := newGateway(t, stored...)
			before := g.server.All()
			got := g.written(writeCase{holder: access.Holder{Scope: writer, Patient: "a"}, request: request.line, body: request.body, header: request.header})
			body, _ := io.ReadAll(got.Body)
			written := len(g.server.All()) != len(before) || g.server.Get("DocumentReference/w") != before["DocumentReference/w"]
			if written != want || written != (got.StatusCode/100 == 2) && !strings.Contains(request.body, `"batch"`) {
				t.Errorf("%s with %q: %d, written %v, want %v: %.200s", request.line, url, got.StatusCode, written, want, body)
			}
		}
	}
}

// In a transaction, documents may attach only Binaries that the same transaction writes.
func TestAttachmentInTransaction(t *testing.T) {
	t.Parallel()
	own := `{"resourceType":"Binary","id":"x","contentType":"text/plain","securityContext":{"reference":"Patient/a"},"data":"aGVsbG8="}`
	for _, tt := range []struct {
		name, binary, url string
		status            int
	}{
		{"created", entryWithFullURL("urn:uuid:1", "POST", "Binary", own), "urn:uuid:1", 200},
		{"created, of another patient", entryWithFullURL("urn:uuid:1", "POST", "Binary", strings.Replace(own, "Patient/a", "Patient/b", 1)), "urn:uuid:1", 403},
		{"created, without a patient", entryWithFullURL("urn:uuid:1", "POST", "Binary", plain), "urn:uuid:1", 403},
		{"under its id", entryWithFullURL("https://gateway.example/fhir/R4/Binary/x", "PUT", "Binary/x", own), "Binary/x", 200},
		{"one that the server has", entryWithFullURL("urn:uuid:1", "POST", "Binary", own), "Binary/n", 403},
		{"one that the server has, over it", entryWithFullURL("https://gateway.example/fhir/R4/Binary/n", "PUT", "Binary/n", strings.Replace(own, `"x"`, `"n"`, 1)), "Binary/n", 403},
	} {
		g := newGateway(t, append(slices.Clone(records), plain)...)
		g.AllowsUpsert = true
		got := g.submit(patientA, "transaction", tt.binary, entryWithFullURL("urn:uuid:2", "POST", "DocumentReference", documentReference("w", "clinical-note", "Patient/a", "", tt.url)))
		if text, _ := io.ReadAll(got.Body); got.StatusCode != tt.status {
			t.Errorf("%s: %d: %s", tt.name, got.StatusCode, text)
		}
	}
}

// longContent is a FHIR server with a Binary of patient a of configurable size.
type longContent struct {
	size                  int
	etags                 [2]string // ETags of the Binary and of its content
	contentType, context  string    // Content-Type and X-Security-Context of the content
	status                int
	requests              []string
	inline                string // the Binary in FHIR JSON
	sentRange, sentAccept string
}

func (s *longContent) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	if strings.Contains(r.URL.Path, "DocumentReference") {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, err := io.WriteString(w, `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":`+documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")+`}]}`)
		return err
	}
	w.Header().Set("Etag", s.etags[0])
	if strings.Contains(r.Header.Get("Accept"), "fhir+json") {
		w.Header().Set("Content-Type", "application/fhir+json")
		text := `{"resourceType":"Binary","id":"n","contentType":"application/dicom"}`
		if !strings.Contains(r.URL.RawQuery, "_elements") {
			text = s.inline
		}
		_, err := io.WriteString(w, text)
		return err
	}
	s.sentRange, s.sentAccept = r.Header.Get("Range"), r.Header.Get("Accept")
	w.Header().Set("Etag", s.etags[1])
	w.Header().Set("Content-Type", s.contentType)
	w.Header().Set("X-Internal", "secret")
	if s.context != "" {
		w.Header().Set("X-Security-Context", s.context)
	}
	w.WriteHeader(s.status)
	part := make([]byte, 64<<10)
	for remaining := s.size; remaining > 0; remaining -= len(part) {
		if _, err := w.Write(part[:min(remaining, len(part))]); err != nil {
			panic(http.ErrAbortHandler) // as a reverse proxy does
		}
	}
	return nil
}

// byteCounter counts the bytes that a client gets.
type byteCounter struct {
	http.ResponseWriter
	bytes int
}

func (d *byteCounter) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// A content of 100 MB is streamed without buffering, but only if it belongs to the judged version.
func TestBinaryStream(t *testing.T) {
	const small = `{"resourceType":"Binary","id":"n","contentType":"application/dicom","data":"aGVsbG8="}`
	for _, tt := range []struct {
		name   string
		server longContent
		method string
		bytes  int // content bytes that the client receives; 5 for the Binary in FHIR JSON
	}{
		{"100 MB", longContent{size: 100 << 20, etags: [2]string{`W/"1"`, `W/"1"`}, status: 200}, "GET", 100 << 20},
		{"a strong ETag", longContent{size: 7, etags: [2]string{`W/"1"`, `"1"`}, status: 200}, "GET", 7},
		{"a part", longContent{size: 7, etags: [2]string{`W/"1"`, `W/"1"`}, status: 206}, "GET", 7},
		{"another version", longContent{size: 100 << 20, etags: [2]string{`W/"1"`, `W/"2"`}, status: 200}, "GET", 5},
		{"no version of the content", longContent{size: 7, etags: [2]string{`W/"1"`, ""}, status: 200}, "GET", 5},
		{"no version", longContent{size: 7, status: 200}, "GET", 5},
		{"the Binary in JSON", longContent{size: 7, etags: [2]string{`W/"1"`, `W/"1"`}, contentType: "application/fhir+json", status: 200}, "GET", 5},
		{"the Binary in XML", longContent{size: 7, etags: [2]string{`W/"1"`, `W/"1"`}, contentType: "application/fhir+xml", status: 200}, "GET", 5},
		{"a security context after all", longContent{size: 7, etags: [2]string{`W/"1"`, `W/"1"`}, context: "Patient/b", status: 200}, "GET", 5},
		{"an error", longContent{size: 7, etags: [2]string{`W/"1"`, `W/"1"`}, status: 500}, "GET", 5},
		{"not found any more", longContent{size: 7, etags: [2]string{`W/"1"`, `W/"1"`}, status: 404}, "GET", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.server
			s.inline = small
			if s.contentType == "" {
				s.contentType = "application/dicom"
			}
			g := newGateway(t)
			recorder := httptest.NewRecorder()
			w := &byteCounter{ResponseWriter: recorder}
			r := httptest.NewRequest(tt.method, "/fhir/R4/Binary/n", nil)
			r.Header.Set("Range", "bytes=0-6")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := g.Serve(w, r, &s, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)}); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; w.bytes != tt.bytes || allocated > 8<<20 {
				t.Errorf("%d bytes, %d allocated: %q", w.bytes, allocated, s.requests)
			}
			header := recorder.Header()
			if header.Get("Content-Type") != "application/dicom" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("X-Internal") != "" || !strings.Contains(header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("headers %v", header)
			}
			if s.sentAccept != "" && (strings.Contains(s.sentAccept, "xml") || s.sentRange != "bytes=0-6") {
				t.Errorf("request with Accept %q, Range %q", s.sentAccept, s.sentRange)
			}
		})
	}
}

// Content that HAPI stores outside of the Binary is returned only if it belongs to the judged version.
func TestBinaryOutside(t *testing.T) {
	t.Parallel()
	const outside = `{"resourceType":"Binary","id":"n","contentType":"application/dicom","_data":{"extension":[{"url":"http://hapifhir.io/fhir/StructureDefinition/externalized-binary-hash-sha256","valueString":"cafe"}]}}`
	for etag, want := range map[string]int{`"cafe"`: 200, `"beef"`: 502, "": 502} {
		s := &longContent{size: 7, etags: [2]string{`W/"1"`, etag}, contentType: "application/dicom", status: 200, inline: outside}
		g, recorder := newGateway(t), httptest.NewRecorder()
		err := g.Serve(recorder, httptest.NewRequest(http.MethodGet, "/fhir/R4/Binary/n", nil), s, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)})
		status := recorder.Code
		if refusal := rejectionIn(err); refusal != nil {
			status = refusal.Status
		}
		if last := s.requests[len(s.requests)-1]; status != want || !strings.HasSuffix(last, "/Binary/n/$binary-access-read?path=Binary") || want == 200 && (recorder.Body.Len() != 7 || recorder.Header().Get("Etag") != `W/"1"`) {
			t.Errorf("%s: %d, %q", etag, status, s.requests)
		}
	}
}

// A DocumentReference that was written without a patient restriction (by a policy or another scope) does not make a Binary
// readable for a token that may read Binaries of one patient only.
func TestAttachmentUnbound(t *testing.T) {
	t.Parallel()
	staff := interaction.Reference{Type: "Practitioner", ID: "alice"}
	opening, moving := documentReference("w", "clinical-note", "Patient/a", "", "Binary/n"), documentReference("other", "clinical-note", "Patient/a", "", "Binary/his")
	for _, tt := range []struct {
		name, rule, scope string
		refused           bool
	}{
		{"a policy for resources", `allow request.interaction != 'read' && resource.resourceType == 'DocumentReference'`, "patient/*.rs", true},
		{"a policy for requests", `allow request.type == 'DocumentReference' && request.interaction != 'read'`, "patient/*.rs", true},
		{"a policy beside scopes to write", `allow request.interaction != 'read' && resource.resourceType == 'DocumentReference'`, "patient/*.cruds", true},
		{"a scope for all documents", "", "user/DocumentReference.cruds patient/Binary.rs", true},
		{"a scope for all documents, of a category", "", "user/DocumentReference.cruds?category=clinical-note patient/Binary.rs", true},
		{"scopes to search everything", "", "user/*.s user/DocumentReference.cruds patient/Binary.rs", false}, // the searches include Binaries
		{"a scope to read all Binaries", "", "user/DocumentReference.cruds user/Binary.r patient/*.rs", false},
		{"a scope to create Binaries", "", "user/DocumentReference.cruds user/Binary.c patient/Binary.rs", false},
		{"no scope to read Binaries", "", "user/DocumentReference.cruds patient/Patient.rs", false},
	} {
		for _, request := range []struct{ line, body, header string }{
			{"POST DocumentReference", opening, ""},
			{"POST DocumentReference", opening, "If-None-Exist: _id=none"},
			{"PUT DocumentReference/w", opening, ""},
			{"PUT DocumentReference?_id=w", opening, ""},
			{"PUT DocumentReference/other", moving, ""},
			{"PATCH DocumentReference/w", `[{"op":"replace","path":"/content/0/attachment/url","value":"Binary/n"}]`, "Content-Type: application/json-patch+json"},
			{"PATCH DocumentReference/other", `[{"op":"replace","path":"/subject/reference","value":"Patient/a"}]`, "Content-Type: application/json-patch+json"},
			{"POST ", `{"resourceType":"Bundle","type":"batch","entry":[` + entryWithResource("POST", "DocumentReference", opening) + `]}`, ""},
			{"POST ", `{"resourceType":"Bundle","type":"transaction","entry":[` + entryWithResource("PUT", "DocumentReference/w", opening) + `]}`, ""},
		} {
			g := newGateway(t, append(slices.Clone(records), plain, strings.Replace(plain, `"n"`, `"his"`, 1), documentReference("other", "clinical-note", "Patient/b", "", "Binary/his"),
				documentReference("w", "clinical-note", "Patient/a", "", "https://elsewhere.example/x.pdf"))...)
			if tt.rule != "" {
				g = g.withRules(tt.rule)
			}
			before := g.server.All()
			h := access.Holder{Scope: tt.scope, Patient: "a", User: staff}
			got := g.written(writeCase{holder: h, request: request.line, body: request.body, header: request.header})
			text, _ := io.ReadAll(got.Body)
			after := g.server.All()
			written := len(after) != len(before) || after["DocumentReference/w"] != before["DocumentReference/w"] || after["DocumentReference/other"] != before["DocumentReference/other"]
			if written == tt.refused && !(tt.rule != "" && strings.Contains(request.line, "?")) {
				t.Errorf("%s: %s: %d, written %v: %.200s", tt.name, request.line, got.StatusCode, written, text)
			}
			for _, id := range []string{"n", "his"} {
				if status := g.get(h, "Binary/"+id).StatusCode; status == 200 && tt.refused {
					t.Errorf("%s: %s: Binary/%s is open", tt.name, request.line, id)
				}
			}
		}
	}
}

// A DocumentReference makes its attachment readable only if the attachment is a Binary, even if the site applies
// security_context to other types: when a DocumentReference is written, only attached Binaries are checked.
func TestReferrerOfBinary(t *testing.T) {
	t.Parallel()
	g := newGateway(t, append(slices.Clone(records), `{"resourceType":"Media","id":"m","status":"completed","subject":{"reference":"Patient/b"}}`, documentReference("w", "clinical-note", "Patient/a", "", "Media/m"))...)
	g.TypeRules = enforce.NewTypeRules(enforce.TypeRules{"Media": enforce.FindTypeRule("security_context")})
	if got := g.get(patientA, "Media/m").StatusCode; got != http.StatusNotFound {
		t.Errorf("status %d", got)
	}
}

// No part of denied content is returned, whatever element the policy evaluates and however the FHIR server sends the content.
func TestDeniedContent(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		`resource.meta.security.code == 'VIP'`, `resource.contentType == 'text/plain'`, `resource.data == 'aGVsbG8='`,
	} {
		for _, sends := range []bool{false, true} {
			for _, line := range []string{"", "Range: bytes=0-2", "Accept: text/plain", `If-None-Match: W/"1"`, "Accept: application/fhir+json", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"} {
				for _, target := range []string{"GET Binary/n", "HEAD Binary/n", "GET Binary/n/_history/1", "GET Binary/n?_format=text/plain", "GET Binary/n?_elements=id", "GET Binary/n/_history"} {
					for _, h := range []access.Holder{reader, patientA} {
						g := newGateway(t, label(plain), documentReference("d", "clinical-note", "Patient/a", "", "Binary/n")).withRules("deny resource.resourceType == 'Binary' && " + rule)
						g.server.SendsContent = sends
						got := g.written(writeCase{holder: h, request: target, header: "Content-Type: \n" + line})
						if got.StatusCode < 400 {
							t.Errorf("%s: %s %s, sends content %v: %d", rule, target, line, sends, got.StatusCode)
						}
					}
				}
			}
		}
	}
	const outside = `{"resourceType":"Binary","id":"n","contentType":"application/dicom","_data":{"extension":[{"url":"http://hapifhir.io/fhir/StructureDefinition/externalized-binary-hash-sha256","valueString":"cafe"}]}}`
	for rule, want := range map[string]int{`deny resource.data == 'aGVsbG8='`: 404, `deny resource.status == 'x'`: 200} {
		g := newGateway(t).withRules(rule)
		g.next = &longContent{size: 7, etags: [2]string{`W/"1"`, `"cafe"`}, contentType: "application/dicom", status: 200, inline: outside}
		if got := g.get(patientA, "Binary/n").StatusCode; got != want {
			t.Errorf("%s: a content outside of the Binary: %d, want %d", rule, got, want)
		}
	}
}

// A transaction entry that seems to write a Binary with an existing id does not make the existing Binary attachable.
func TestBinaryInTransaction(t *testing.T) {
	t.Parallel()
	own := `{"resourceType":"Binary","id":"n","contentType":"text/plain","securityContext":{"reference":"Patient/a"},"data":"aGVsbG8="}`
	document := func(url string) string {
		return entryWithFullURL("urn:uuid:2", "POST", "DocumentReference", documentReference("w", "clinical-note", "Patient/a", "", url))
	}
	for _, url := range []string{"Binary/n", "urn:uuid:1", "https://gateway.example/fhir/R4/Binary/n", fhirtest.Address + "/Binary/n"} {
		for name, entry := range map[string]string{
			"created with the id":     entryWithFullURL("urn:uuid:1", "POST", "Binary", own),
			"created with the url":    entryWithFullURL("https://gateway.example/fhir/R4/Binary/n", "POST", "Binary", own),
			"created conditionally":   `{"fullUrl":"urn:uuid:1","request":{"method":"POST","url":"Binary","ifNoneExist":"_id=n"},"resource":` + own + `}`,
			"updated":                 entryWithFullURL("urn:uuid:1", "PUT", "Binary/n", own),
			"updated by criteria":     entryWithFullURL("urn:uuid:1", "PUT", "Binary?_id=n", own),
			"deleted":                 entryWithoutResource("DELETE", "Binary/n"),
			"read":                    `{"fullUrl":"urn:uuid:1","request":{"method":"GET","url":"Binary/n"}}`,
			"patched":                 `{"fullUrl":"urn:uuid:1","request":{"method":"PATCH","url":"Binary/n"},"resource":{"resourceType":"Binary","contentType":"application/json-patch+json","data":"W10="}}`,
			"created by another name": entryWithFullURL("urn:uuid:1", "POST", "Observation", newObservation),
		} {
			for _, upsert := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %v", name, url, upsert), func(t *testing.T) {
					g := newGateway(t, append(slices.Clone(records), plain)...)
					g.AllowsUpsert = upsert
					text, _ := io.ReadAll(g.submit(patientA, "transaction", entry, document(url)).Body)
					r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Binary/n", nil)
					if got := g.send(patientA, r).StatusCode; got == 200 {
						t.Errorf("open: %.300s", text)
					}
				})
			}
		}
	}
}
