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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// note is a DocumentReference with an attachment.
func note(id, category, subject, more, url string) string {
	return `{"resourceType":"DocumentReference","id":"` + id + `","status":"current","category":[{"coding":[{"code":"` + category + `"}]}],"subject":{"reference":"` + subject + `"}` +
		more + `,"content":[{"attachment":{"contentType":"text/plain","url":"` + url + `"}}]}`
}

const (
	// plain is a Binary as HAPI stores it, without a securityContext.
	plain = `{"resourceType":"Binary","id":"n","contentType":"text/plain","data":"aGVsbG8="}`

	notesOnly = "patient/DocumentReference.rs?category=clinical-note patient/Binary.rs"
)

// TestBinaryByReferrer is over the documents that name a Binary without a securityContext: who may read it.
func TestBinaryByReferrer(t *testing.T) {
	t.Parallel()
	many := make([]string, 21)
	for n := range many {
		many[n] = note(fmt.Sprint("d", n), "clinical-note", "Patient/a", "", "Binary/n")
	}
	for _, tt := range []struct {
		name, scope string
		documents   []string
		status      int
	}{
		{"a relative address", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"with a slash", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "/Binary/n")}, 200},
		{"the gateway's address", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "https://gateway.example/fhir/R4/Binary/n")}, 200},
		{"the server's address", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", fhirtest.Address+"/Binary/n")}, 200},
		{"another server's address", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "https://other.example/fhir/Binary/n")}, 404},
		{"another Binary", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n2")}, 404},
		{"no document", "patient/*.rs", nil, 404},
		{"another patient's", "patient/*.rs", []string{note("d", "clinical-note", "Patient/b", "", "Binary/n")}, 404},
		{"nobody's", "patient/*.rs", []string{note("d", "clinical-note", "Group/g", "", "Binary/n")}, 404},
		{"two of the patient's", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n"), note("e", "other", "Patient/a", "", "/Binary/n")}, 200},
		{"the patient's and another patient's", "patient/*.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n"), note("e", "other", "Patient/b", "", "/Binary/n")}, 404},
		{"another patient's, whose author is the patient", "patient/*.rs", []string{note("d", "clinical-note", "Patient/b", `,"author":[{"reference":"Patient/a"}]`, "Binary/n")}, 404},
		{"of a contained patient", "patient/*.rs", []string{note("d", "clinical-note", "#p", `,"contained":[{"resourceType":"Patient","id":"p"}],"author":[{"reference":"Patient/a"}]`, "Binary/n")}, 404},
		{"too many", "patient/*.rs", many, 404},
		{"as many as are judged", "patient/*.rs", many[:20], 200},
		{"a covered category", notesOnly, []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"another category", notesOnly, []string{note("d", "psychotherapy", "Patient/a", "", "Binary/n")}, 404},
		{"a covered category and another", notesOnly, []string{note("d", "psychotherapy", "Patient/a", "", "Binary/n"), note("e", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"no scope for documents", "patient/Binary.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"a scope to search for documents", "patient/Binary.rs patient/DocumentReference.s", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"a scope for documents of patient c", "patient/Binary.rs user/DocumentReference.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"a scope for all documents", "patient/Binary.rs system/DocumentReference.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 200},
		{"a scope for all documents, another patient's", "patient/Binary.rs system/DocumentReference.rs", []string{note("d", "clinical-note", "Patient/b", "", "Binary/n")}, 404},
		{"a constraint on the Binary", "patient/Binary.rs?_id=other patient/DocumentReference.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 404},
		{"no scope for Binary", "patient/DocumentReference.rs", []string{note("d", "clinical-note", "Patient/a", "", "Binary/n")}, 403},
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

// TestBinaryContextDecides checks that a document does not open a Binary that says itself whose it is, nor one for which a
// policy says otherwise.
func TestBinaryContextDecides(t *testing.T) {
	t.Parallel()
	for context, want := range map[string]int{
		`{"reference":"Patient/b"}`: 404, `{"reference":"Observation/b1"}`: 404, `{"display":"x"}`: 404, `{}`: 404, `{"reference":"urn:uuid:1"}`: 404, `{"reference":"Patient/a"}`: 200,
	} {
		text := strings.Replace(plain, `"data"`, `"securityContext":`+context+`,"data"`, 1)
		for _, sends := range []bool{false, true} {
			g := newGateway(t, append(slices.Clone(records), text, note("d", "clinical-note", "Patient/a", "", "Binary/n"))...)
			g.server.SendsContent = sends
			if got := g.get(patientA, "Binary/n").StatusCode; got != want {
				t.Errorf("%s: %d, want %d", context, got, want)
			}
		}
	}
	for rule, want := range map[string]int{
		"deny resource.resourceType == 'Binary'": 404, "deny resource.resourceType == 'DocumentReference'": 404, "deny resource.status == 'x'": 200,
	} {
		g := newGateway(t, plain, note("d", "clinical-note", "Patient/a", "", "Binary/n")).withRules(rule)
		if got := g.get(patientA, "Binary/n").StatusCode; got != want {
			t.Errorf("%s: %d, want %d", rule, got, want)
		}
	}
}

// TestAttachment is over DocumentReferences that a client bound to patient a writes: none may name a Binary that the client
// may not read, in whatever way it is written.
func TestAttachment(t *testing.T) {
	t.Parallel()
	secured := func(id, context string) string {
		return `{"resourceType":"Binary","id":"` + id + `","contentType":"text/plain","securityContext":{"reference":"` + context + `"},"data":"aGVsbG8="}`
	}
	stored := append(slices.Clone(records), plain, secured("own", "Patient/a"), secured("record", "Observation/a1"), secured("other", "Patient/b"),
		strings.Replace(plain, `"n"`, `"named"`, 1), strings.Replace(plain, `"n"`, `"psych"`, 1), strings.Replace(plain, `"n"`, `"his"`, 1),
		note("d", "clinical-note", "Patient/a", "", "Binary/named"), note("p", "psychotherapy", "Patient/a", "", "Binary/psych"), note("h", "clinical-note", "Patient/b", "", "Binary/his"),
		note("w", "clinical-note", "Patient/a", "", "https://elsewhere.example/x.pdf"))
	writer := "patient/DocumentReference.cruds?category=clinical-note patient/Binary.cruds patient/Patient.rs patient/Observation.rs"
	for url, want := range map[string]bool{
		"Binary/own": true, "/Binary/own": true, "https://gateway.example/fhir/R4/Binary/own": true, "Binary/own/_history/1": true, "Binary/record": true, "Binary/named": true,
		"https://elsewhere.example/doc.pdf": true, "https://elsewhere.example/a%20b.pdf": true, "urn:oid:1.2": true,

		"Binary/n": false, "/Binary/n": false, "https://gateway.example/fhir/R4/Binary/n": false, fhirtest.Address + "/Binary/n": false, "https://any.example/fhir/Binary/n": false,
		"Binary/n/_history/1": false, "Binary/n ": false, " Binary/n": false, "Binary/n\\t": false, "Bina\\u0000ry/n": false, "\\u0042inary/n": false, "Binary\\/n": false,
		"Binary%2Fn": false, "%42inary/n": false, "binary/n": false, "Binary/n?x=1": false, "Binary/n#x": false, "//gateway.example/fhir/R4/Binary/n": false, "./Binary/n": false,
		"Binary/other": false, "Binary/psych": false, "Binary/his": false, "Binary/none": false, "Binary/../Binary/n": false, "Binary/": false, "fhir/Binary/n": false,
	} {
		text := note("w", "clinical-note", "Patient/a", "", url)
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
			{"POST ", `{"resourceType":"Bundle","type":"batch","entry":[` + sending("PUT", "DocumentReference/w", text) + `]}`, ""},
			{"POST ", `{"resourceType":"Bundle","type":"transaction","entry":[` + sending("PUT", "DocumentReference/w", text) + `]}`, ""},
			{"POST ", `{"resourceType":"Bundle","type":"transaction","entry":[` + sending("POST", "DocumentReference", text) + `]}`, ""},
		} {
			g := newGateway(t, stored...)
			before := g.server.All()
			got := g.written(writing{holder: access.Holder{Scope: writer, Patient: "a"}, request: request.line, body: request.body, header: request.header})
			body, _ := io.ReadAll(got.Body)
			written := len(g.server.All()) != len(before) || g.server.Get("DocumentReference/w") != before["DocumentReference/w"]
			if written != want || written != (got.StatusCode/100 == 2) && !strings.Contains(request.body, `"batch"`) {
				t.Errorf("%s with %q: %d, written %v, want %v: %.200s", request.line, url, got.StatusCode, written, want, body)
			}
		}
	}
}

// TestAttachmentInTransaction checks that a transaction may name the Binaries that it writes, and those alone.
func TestAttachmentInTransaction(t *testing.T) {
	t.Parallel()
	own := `{"resourceType":"Binary","id":"x","contentType":"text/plain","securityContext":{"reference":"Patient/a"},"data":"aGVsbG8="}`
	for _, tt := range []struct {
		name, binary, url string
		status            int
	}{
		{"created", named("urn:uuid:1", "POST", "Binary", own), "urn:uuid:1", 200},
		{"created, of another patient", named("urn:uuid:1", "POST", "Binary", strings.Replace(own, "Patient/a", "Patient/b", 1)), "urn:uuid:1", 403},
		{"created, of nobody", named("urn:uuid:1", "POST", "Binary", plain), "urn:uuid:1", 403},
		{"under its id", named("https://gateway.example/fhir/R4/Binary/x", "PUT", "Binary/x", own), "Binary/x", 200},
		{"one that the server has", named("urn:uuid:1", "POST", "Binary", own), "Binary/n", 403},
		{"one that the server has, over it", named("https://gateway.example/fhir/R4/Binary/n", "PUT", "Binary/n", strings.Replace(own, `"x"`, `"n"`, 1)), "Binary/n", 403},
	} {
		g := newGateway(t, append(slices.Clone(records), plain)...)
		g.Upsert = true
		got := g.submit(patientA, "transaction", tt.binary, named("urn:uuid:2", "POST", "DocumentReference", note("w", "clinical-note", "Patient/a", "", tt.url)))
		if text, _ := io.ReadAll(got.Body); got.StatusCode != tt.status {
			t.Errorf("%s: %d: %s", tt.name, got.StatusCode, text)
		}
	}
}

// longContent is a FHIR server with a Binary of patient a of any length.
type longContent struct {
	size                  int
	etags                 [2]string // of the Binary, and of its content
	contentType, context  string    // of the content
	status                int
	asked                 []string
	inline                string // the Binary in FHIR JSON
	sentRange, sentAccept string
}

func (s *longContent) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	if strings.Contains(r.URL.Path, "DocumentReference") {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, err := io.WriteString(w, `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":`+note("d", "clinical-note", "Patient/a", "", "Binary/n")+`}]}`)
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
	for left := s.size; left > 0; left -= len(part) {
		if _, err := w.Write(part[:min(left, len(part))]); err != nil {
			panic(http.ErrAbortHandler) // as a reverse proxy does
		}
	}
	return nil
}

// discarding counts what a client gets.
type discarding struct {
	http.ResponseWriter
	bytes int
}

func (d *discarding) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// TestBinaryStream checks that a content of 100 MB passes without being held, and that nothing passes but the content of the
// version that was judged.
func TestBinaryStream(t *testing.T) {
	const small = `{"resourceType":"Binary","id":"n","contentType":"application/dicom","data":"aGVsbG8="}`
	for _, tt := range []struct {
		name   string
		server longContent
		method string
		bytes  int // that the client gets; 5 are those of the Binary in FHIR JSON
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
			w := &discarding{ResponseWriter: recorder}
			r := httptest.NewRequest(tt.method, "/fhir/R4/Binary/n", nil)
			r.Header.Set("Range", "bytes=0-6")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := g.Serve(w, r, &s, enforce.Bearer{Rights: access.New(patientA, g.Shared)}); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if held := after.TotalAlloc - before.TotalAlloc; w.bytes != tt.bytes || held > 8<<20 {
				t.Errorf("%d bytes, %d allocated: %q", w.bytes, held, s.asked)
			}
			header := recorder.Header()
			if header.Get("Content-Type") != "application/dicom" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("X-Internal") != "" || !strings.Contains(header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("headers %v", header)
			}
			if s.sentAccept != "" && (strings.Contains(s.sentAccept, "xml") || s.sentRange != "bytes=0-6") {
				t.Errorf("asked with Accept %q, Range %q", s.sentAccept, s.sentRange)
			}
		})
	}
}

// TestBinaryOutside checks contents that HAPI stores outside of the Binary: they are those of the version that was judged, or
// an error.
func TestBinaryOutside(t *testing.T) {
	t.Parallel()
	const outside = `{"resourceType":"Binary","id":"n","contentType":"application/dicom","_data":{"extension":[{"url":"http://hapifhir.io/fhir/StructureDefinition/externalized-binary-hash-sha256","valueString":"cafe"}]}}`
	for etag, want := range map[string]int{`"cafe"`: 200, `"beef"`: 502, "": 502} {
		s := &longContent{size: 7, etags: [2]string{`W/"1"`, etag}, contentType: "application/dicom", status: 200, inline: outside}
		g, recorder := newGateway(t), httptest.NewRecorder()
		err := g.Serve(recorder, httptest.NewRequest(http.MethodGet, "/fhir/R4/Binary/n", nil), s, enforce.Bearer{Rights: access.New(patientA, g.Shared)})
		status := recorder.Code
		if refusal := statusOf(err); refusal != nil {
			status = refusal.Status
		}
		if last := s.asked[len(s.asked)-1]; status != want || !strings.HasSuffix(last, "/Binary/n/$binary-access-read?path=Binary") || want == 200 && (recorder.Body.Len() != 7 || recorder.Header().Get("Etag") != `W/"1"`) {
			t.Errorf("%s: %d, %q", etag, status, s.asked)
		}
	}
}
