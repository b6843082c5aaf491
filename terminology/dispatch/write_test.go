package dispatch

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// rejectingServer is a server that rejects writes to /refused and fails on writes to /failed.
type rejectingServer struct{ http.Handler }

func (s rejectingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/refused"):
		w.WriteHeader(http.StatusPreconditionFailed)
	case strings.HasSuffix(r.URL.Path, "/failed"):
		w.WriteHeader(http.StatusInternalServerError)
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

// TestWriteRemovesConcurrentResponses checks that a write removes responses produced from the old resource meanwhile.
func TestWriteRemovesConcurrentResponses(t *testing.T) {
	t.Parallel()
	const url = "http://x.example/vs"
	var code atomic.Value
	code.Store("old")
	g := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(url, code.Load().(string)))
	}))
	want := func(code string) {
		for range 3 { // first computed, then stored, then served from the cache
			if got := read(t, g.expand(url)); !strings.Contains(got, `"code":"`+code+`"`) {
				t.Errorf("got %s, want %s", got, code)
			}
		}
	}
	next := plainHandler{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK) // from here on, the client may know the result
		want("old")
		code.Store("new")
	})}
	r := httptest.NewRequest(http.MethodPut, "/fhir/R4/ValueSet/1", strings.NewReader(`{"resourceType":"ValueSet","id":"1","url":"`+url+`"}`))
	r.Header.Set("Content-Type", "application/fhir+json")
	if err := g.front.ServeHTTP(httptest.NewRecorder(), r, next); err != nil {
		t.Fatal(err)
	}
	want("new")
}

// TestBatchInvalidates checks that a Bundle that writes definitions invalidates everything, because its definitions are not
// parsed, and that a Bundle of other resources invalidates nothing. Operations invalidate everything unless FHIR defines them
// as read-only.
func TestBatchInvalidates(t *testing.T) {
	t.Parallel()
	const observation = `{"resource":{"resourceType":"Observation","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}]}`
	for name, tt := range map[string]struct {
		method, path, body string
		wantCached         bool
	}{
		"a transaction with a value set":   {http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"ValueSet"}}]}`, false},
		"one with a slash":                 {http.MethodPost, "/", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"ValueSet"}}]}`, false},
		"a transaction with a patient":     {http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Patient"}}]}`, true},
		"a transaction with codes":         {http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[` + observation + `,"request":{"method":"POST","url":"Observation"}}]}`, true},
		"a batch that deletes a value set": {http.MethodPost, "", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"url":"ValueSet/1","method":"DELETE"}}]}`, false},
		"a batch that expands":             {http.MethodPost, "", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"url":"ValueSet/$expand?url=x","method":"GET"}}]}`, true},
		"a code system":                    {http.MethodPost, "/CodeSystem", `{"resourceType":"CodeSystem","url":"http://x.example/other"}`, false},
		"a code system without a url":      {http.MethodPost, "/CodeSystem", `{"resourceType":"CodeSystem"}`, false},
		"a conditional delete":             {http.MethodDelete, "/ValueSet?url=x", "", false},
		"a conditional update":             {http.MethodPut, "/ValueSet?url=x", `{"resourceType":"ValueSet","url":"x"}`, false},
		"a conditional patch":              {http.MethodPatch, "/ValueSet?url=x", "[]", false},
		"a patch":                          {http.MethodPatch, "/ConceptMap/1", "[]", false},
		"a path with dots":                 {http.MethodDelete, "/Patient/../ValueSet/1", "", false},
		"a path with slashes":              {http.MethodDelete, "//ValueSet//1", "", false},
		"an import":                        {http.MethodPost, "/$import", "{}", false},
		"an import of codes":               {http.MethodPost, "/CodeSystem/$import", "{}", false},
		"a change of one by an operation":  {http.MethodPost, "/CodeSystem/1/$apply-codesystem-delta-add", "{}", false},
		"a validation":                     {http.MethodPost, "/ValueSet/$validate-code", "{}", true},
		"an operation on patients":         {http.MethodPost, "/Patient/$match", "{}", true},
		"a query in GraphQL":               {http.MethodPost, "/$graphql", "{Patient(id:1){id}}", true},
		"a mutation in GraphQL":            {http.MethodPost, "/$graphql", "mutation{ValueSetCreate{id}}", false},
		"a search by POST":                 {http.MethodPost, "/ValueSet/_search", "url=x", true},
		"a patient":                        {http.MethodPut, "/Patient/1", "{}", true},
		"a definition that is only read":   {http.MethodGet, "/ValueSet/1", "", true},
		"a refused write":                  {http.MethodPut, "/ValueSet/refused", `{"resourceType":"ValueSet","url":"x"}`, true},
		"a write that failed":              {http.MethodPut, "/ValueSet/failed", `{"resourceType":"ValueSet","url":"x"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newExpandingBackend()
			g := newSite(t, settings{}, rejectingServer{server})
			read(t, g.expand(foreign))
			r := httptest.NewRequest(tt.method, "/", strings.NewReader(tt.body))
			r.URL.Path, r.URL.RawQuery, _ = strings.Cut("/fhir/R4"+tt.path, "?")
			r.Header.Set("Content-Type", "application/fhir+json")
			read(t, g.send(r))
			server.requests.Store(0)
			read(t, g.expand(foreign))
			if cached := server.requests.Load() == 0; cached != tt.wantCached {
				t.Errorf("cached: %t, want %t", cached, tt.wantCached)
			}
		})
	}
}

// TestWrittenBundle checks that the writes of a Bundle are detected from its requests and resource types, regardless of how the
// body is split into chunks.
func TestWrittenBundle(t *testing.T) {
	for name, tt := range map[string]struct {
		body    string
		changes bool
	}{
		"a value set":                      {`{"entry":[{"resource":{"resourceType" : "ValueSet"},"request":{"method":"PUT"}}]}`, true},
		"a value set, not by a request":    {`{"entry":[{"resource":{"resourceType":"ValueSet"}}]}`, true},
		"a contained one":                  {`{"resource":{"contained":[{"resourceType":"CodeSystem"}]},"request":{"method":"PUT"}}`, true},
		"a deletion":                       {`{"request":{"method":"DELETE","url":"ConceptMap?url=x"}}`, true},
		"a deletion, by its whole address": {`{"request":{"method":"DELETE","url":"https:\/\/x.example\/ValueSet\/1"}}`, true},
		"an operation on the server":       {`{"request":{"method":"POST","url":"\/$import"}}`, true},
		"a read":                           {`{"request":{"method":"GET","url":"ValueSet/1"}}`, false},
		"a read and a write":               {`{"request":{"method":"GET","url":"ValueSet/1"}},{"request":{"method":"PUT","url":"Patient/1"}}`, true},
		"a code":                           {`{"resource":{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode"},"request":{"method":"PUT","url":"Patient/1"}}`, false},
		"a narrative":                      {`{"div":"<a href=\"ValueSet.html\">\"url\":\"ValueSet\"</a>","request":{"method":"PUT","url":"Patient/1"}}`, false},
		"letters that are escaped":         {`{"request":{"method":"DELETE","url":"Value\u0053et/1"}}`, true},
		"a member that is escaped":         {`{"request":{"method":"DELETE","u\u0072l":"ValueSet/1"}}`, true},
		"letters that must be escaped":     {`{"name":"M\u00fcller \u003c\\","request":{"method":"PUT","url":"Patient/1"}}`, false},
		"a url without an end":             {`{"request":{"method":"DELETE","url":"?` + strings.Repeat("x", maxMemberLength) + `ValueSet`, true},
	} {
		for at := range min(len(tt.body), 200) {
			var b bundleInspector
			for _, part := range []string{tt.body[:at], tt.body[at:]} {
				_, _ = b.Write([]byte(part))
			}
			if name == "a url without an end" {
				_, _ = b.Write([]byte(`"`))
			}
			if b.mayChangeDefinitions() != tt.changes {
				t.Fatalf("%s, in parts at %d: %t", name, at, b.mayChangeDefinitions())
			}
		}
	}
}

// FuzzWrittenBundle checks that a member with the name of a definition type is detected in any Bundle.
func FuzzWrittenBundle(f *testing.F) {
	f.Add("text", `{"a":[1,"\""]}`, "ValueSet/1")
	f.Fuzz(func(t *testing.T, text, raw, url string) {
		if !json.Valid([]byte(raw)) {
			raw = "null"
		}
		quoted, _ := json.Marshal(text)
		named, _ := json.Marshal(url)
		var b bundleInspector
		_, _ = b.Write([]byte(`{"text":` + string(quoted) + `,"raw":` + raw + `,"entry":[{"request":{"method":"DELETE","url":` + string(named) + `}}]}`))
		if namesDefinitions([]byte(url)) && len(url) < maxMemberLength && !b.mayChangeDefinitions() {
			t.Errorf("%q after %q and %s", url, text, raw)
		}
	})
}

// TestResponseWriterDrops checks that dropped responses are never sent, and that a flush does not start a response.
func TestResponseWriterDrops(t *testing.T) {
	t.Parallel()
	for status, dropped := range map[int]bool{http.StatusOK: false, http.StatusNotFound: true} {
		client := httptest.NewRecorder()
		w := &responseWriter{ResponseWriter: client, shouldDrop: func(status int) bool { return status >= http.StatusBadRequest }}
		control := http.NewResponseController(w)
		if err := control.Flush(); err != nil || client.Flushed {
			t.Errorf("%d: flushed before it began: %v", status, err)
		}
		w.WriteHeader(status)
		w.WriteHeader(http.StatusTeapot) // has no effect because the status is already set
		_, _ = io.WriteString(w, "a")
		_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("b")}) // calls ReadFrom
		err := control.Flush()
		if reached := client.Body.String() == "ab" && client.Code == status && client.Flushed; err != nil || w.status != status || w.isDropped != dropped || reached == dropped {
			t.Errorf("%d: %+v, the client got %d %q, %v", status, w, client.Code, client.Body, err)
		}
	}
}

// TestResponseWriterInforms checks that informational responses are sent before the final response.
func TestResponseWriterInforms(t *testing.T) {
	t.Parallel()
	var begun []int
	w := &responseWriter{ResponseWriter: httptest.NewRecorder(), beforeFinal: func(status int) { begun = append(begun, status) }}
	w.WriteHeader(http.StatusEarlyHints)
	if w.finalStarted || w.status != http.StatusEarlyHints {
		t.Errorf("after a hint: %+v", w)
	}
	_, _ = w.Write(nil)
	if !w.finalStarted || w.status != http.StatusOK || len(begun) != 1 || begun[0] != http.StatusOK {
		t.Errorf("begun with %v: %+v", begun, w)
	}
}
