package sample

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// base is the FHIR base URL of the test server.
const base = "https://fhir.example/fhir/R4"

// newTestServer returns a server that contains a few resources instead of the thirty patients.
func newTestServer(t testing.TB) *Server {
	t.Helper()
	return serverWith(t,
		`{"resourceType":"Patient","id":"1","name":[{"family":"Ashby","given":["Nora"]}],"gender":"female","birthDate":"1948-03-14","generalPractitioner":[{"reference":"Practitioner/alice"}]}`,
		`{"resourceType":"Patient","id":"2","name":[{"family":"Birchall"}],"gender":"male","birthDate":"1952-07-30"}`,
		`{"resourceType":"Patient","id":"3","active":true}`,
		`{"resourceType":"Practitioner","id":"alice","name":[{"family":"Adams"}]}`,
		`{"resourceType":"Observation","id":"1","status":"final","subject":{"reference":"Patient/1"},"performer":[{"reference":"Practitioner/alice"}],"effectiveDateTime":"2026-01-02","category":[{"coding":[{"code":"laboratory"}]}]}`,
		`{"resourceType":"Observation","id":"2","status":"final","subject":{"reference":"Patient/2"},"effectiveDateTime":"2025-01-02","category":[{"coding":[{"code":"vital-signs"}]}]}`,
		`{"resourceType":"Binary","id":"note","contentType":"text/plain","data":"aGVsbG8="}`,
	)
}

func serverWith(t testing.TB, texts ...string) *Server {
	t.Helper()
	var list [][]byte
	for _, text := range texts {
		list = append(list, []byte(text))
	}
	store, err := NewStore(list...)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{Store: store, Base: "/fhir/R4", BaseURL: base}
}

// send sends a request. headers are alternating names and values.
func send(s *Server, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, strings.TrimSuffix("/fhir/R4/"+target, "/"), strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// bundleResources returns references to the resources in a Bundle, such as Patient/1, with the prefix + for included ones.
func bundleResources(t testing.TB, w *httptest.ResponseRecorder) (list []string) {
	t.Helper()
	var b struct {
		Entry []struct {
			FullURL string
			Search  struct{ Mode string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	for _, e := range b.Entry {
		name := strings.TrimPrefix(e.FullURL, base+"/")
		if e.Search.Mode == "include" {
			name = "+" + name
		}
		list = append(list, name)
	}
	return list
}

// Unsupported requests are rejected with an OperationOutcome.
func TestRefusals(t *testing.T) {
	t.Parallel()
	form := []string{"Content-Type", "text/plain"}
	for _, tt := range []struct {
		name, method, target, body string
		headers                    []string
		status                     int
		code                       string
	}{
		{"unknown type", "GET", "Gadget/1", "", nil, 404, "not-found"},
		{"unknown resource", "GET", "Patient/9", "", nil, 404, "not-found"},
		{"unknown version", "GET", "Patient/1/_history/2", "", nil, 404, "not-found"},
		{"invalid version", "GET", "Patient/1/_history/01", "", nil, 404, "not-found"},
		{"history of nothing", "GET", "Patient/9/_history", "", nil, 404, "not-found"},
		{"unknown parameter", "GET", "Patient?shoesize=9", "", nil, 400, "not-supported"},
		{"a chain", "GET", "Observation?subject.name=ash", "", nil, 400, "not-supported"},
		{"a modifier", "GET", "Patient?name:exact=Ashby", "", nil, 400, "invalid"},
		{"a malformed value", "GET", "Patient?birthdate=yesterday", "", nil, 400, "invalid"},
		{"unknown sort", "GET", "Patient?_sort=shoesize", "", nil, 400, "not-supported"},
		{"unknown include", "GET", "Patient?_include=Patient:shoe", "", nil, 400, "not-supported"},
		{"iterated include", "GET", "Patient?_include:iterate=Patient:organization", "", nil, 400, "not-supported"},
		{"_type of nothing", "GET", "?_type=Gadget", "", nil, 400, "invalid"},
		{"a count", "GET", "Patient?_count=-1", "", nil, 400, "invalid"},
		{"a summary", "GET", "Patient?_summary=short", "", nil, 400, "invalid"},
		{"XML", "GET", "Patient/1", "", []string{"Accept", "application/fhir+xml"}, 406, "not-supported"},
		{"XML by parameter", "GET", "Patient/1?_format=xml", "", nil, 406, "not-supported"},
		{"text for a resource", "POST", "Patient", "{}", form, 415, "not-supported"},
		{"no JSON", "POST", "Patient", "{", nil, 400, "structure"},
		{"no resource", "POST", "Patient", "{}", nil, 400, "structure"},
		{"another type", "POST", "Patient", `{"resourceType":"Group"}`, nil, 400, "invalid"},
		{"another id", "PUT", "Patient/1", `{"resourceType":"Patient","id":"2"}`, nil, 400, "invalid"},
		{"meta is not an object", "PUT", "Patient/1", `{"resourceType":"Patient","id":"1","meta":7}`, nil, 400, "structure"},
		{"a version that has gone", "PUT", "Patient/1", `{"resourceType":"Patient","id":"1"}`, []string{"If-Match", `W/"7"`}, 412, "conflict"},
		{"criteria that many match", "DELETE", "Patient?birthdate=gt1900", "", nil, 412, "multiple-matches"},
		{"criteria that are not known", "DELETE", "Patient?shoesize=9", "", []string{"Prefer", "handling=lenient"}, 400, "not-supported"},
		{"patch", "PATCH", "Patient/1", "[]", nil, 501, "not-supported"},
		{"history of a type", "GET", "Patient/_history", "", nil, 501, "not-supported"},
		{"an operation", "GET", "Patient/1/$match", "", nil, 501, "not-supported"},
		{"an operation on an unknown resource", "GET", "Patient/9/$match", "", nil, 404, "not-found"},
		{"expansion of an unknown value set", "GET", "ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gendre", "", nil, 404, "not-found"},
		{"by POST", "POST", "ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"filter","valueString":"f"},{"name":"url","valueUri":"http://x.example/vs"}]}`, nil, 404, "not-found"},
		{"by id", "GET", "ValueSet/administrative-gendre/$expand", "", nil, 404, "not-found"},
		{"lookup in an unknown code system", "GET", "CodeSystem/$lookup?system=http://x.example/cs&code=a", "", nil, 404, "not-found"},
		{"validation in an unknown code system", "GET", "CodeSystem/$validate-code?url=http://x.example/cs&code=a", "", nil, 404, "not-found"},
		{"translation by an unknown map", "GET", "ConceptMap/$translate?url=http://x.example/cm&code=a", "", nil, 404, "not-found"},
		{"expansion of a stored value set", "GET", "ValueSet/$expand?url=http://x.example/stored%7C1", "", nil, 501, "not-supported"},
		{"expansion of a value set in the request", "POST", "ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet"}}]}`, nil, 501, "not-supported"},
		{"a method", "DELETE", "metadata", "", nil, 405, "not-supported"},
		{"a large body", "POST", "Patient", `{"resourceType":"Patient","id":"` + strings.Repeat("x", MaxBodySize) + `"}`, nil, 413, "too-long"},
		{"no Bundle", "POST", "", `{"resourceType":"Patient"}`, nil, 400, "invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t)
			if err := s.Store.load([]byte(`{"resourceType":"ValueSet","id":"stored","url":"http://x.example/stored"}`)); err != nil {
				t.Fatal(err)
			}
			w := send(s, tt.method, tt.target, tt.body, tt.headers...)
			var o struct {
				ResourceType string
				Issue        []struct{ Code, Diagnostics string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || o.ResourceType != "OperationOutcome" || len(o.Issue) != 1 {
				t.Fatalf("%d %v: %s", w.Code, err, w.Body)
			}
			if w.Code != tt.status || o.Issue[0].Code != tt.code || o.Issue[0].Diagnostics == "" {
				t.Errorf("%d %+v, want %d %s", w.Code, o.Issue, tt.status, tt.code)
			}
		})
	}
}

// The CapabilityStatement contains the description of the server and the supported search parameters.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	var c struct {
		FHIRVersion, Description string
		Implementation           struct{ URL string }
		Rest                     []struct {
			Resource []struct {
				Type        string
				SearchParam []struct{ Name string }
			}
		}
	}
	w := send(s, http.MethodGet, "metadata", "")
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || c.FHIRVersion != "4.0.1" || c.Description != Description || c.Implementation.URL != base {
		t.Fatalf("%v: %.300s", err, w.Body)
	}
	if n := len(c.Rest[0].Resource); n < 140 {
		t.Errorf("%d types", n)
	}
	for _, r := range c.Rest[0].Resource {
		for _, p := range r.SearchParam {
			if w := send(s, http.MethodGet, r.Type+"?"+p.Name+":missing=true", ""); w.Code != http.StatusOK {
				t.Errorf("%s?%s: %d %s", r.Type, p.Name, w.Code, w.Body)
			}
		}
	}
}

// HEAD returns the headers of GET without the body.
func TestHead(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	got, want := send(s, http.MethodHead, "Patient/1", ""), send(s, http.MethodGet, "Patient/1", "")
	if got.Code != http.StatusOK || got.Body.Len() > 0 || got.Header().Get("Content-Length") != want.Header().Get("Content-Length") {
		t.Errorf("%d %v: %s", got.Code, got.Header(), got.Body)
	}
}

// A Binary is returned as raw content unless FHIR is requested. The response prevents browsers from executing it.
func TestBinary(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{"": "hello", "*/*": "hello", mediaType: `{"resourceType":"Binary"`} {
		w := send(newTestServer(t), http.MethodGet, "Binary/note", "", "Accept", accept)
		if !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %s", accept, w.Body)
		}
		if want == "hello" && (w.Header().Get("Content-Type") != "text/plain" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox")) {
			t.Errorf("%v", w.Header())
		}
	}
}

// Concurrent reads and writes do not interfere with each other.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				send(s, http.MethodPost, "Patient", `{"resourceType":"Patient","gender":"other"}`)
				send(s, http.MethodPut, "Patient/2", `{"resourceType":"Patient","id":"2","gender":"female"}`)
				send(s, http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Patient"},"request":{"method":"POST","url":"Patient"}},{"request":{"method":"GET","url":"Gadget/1"}}]}`)
			}
		})
		all.Go(func() {
			for range 25 {
				bundleResources(t, send(s, http.MethodGet, "Patient?_sort=gender&_revinclude=Observation:subject", ""))
				send(s, http.MethodGet, "Patient/2/_history", "")
			}
		})
	}
	all.Wait()
	if got := s.Store.Len(); got != 107 {
		t.Errorf("%d resources, want 7 and the 100 that were created", got)
	}
	if w := send(s, http.MethodGet, "Patient/2", ""); w.Header().Get("Etag") != `W/"101"` {
		t.Errorf("after 100 updates %s", w.Header().Get("Etag"))
	}
}
