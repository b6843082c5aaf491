package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// TestLimits reaches each limit of a handler and of a library: what is just allowed is answered, and one more
// is refused with an error that says which limit it is.
func TestLimits(t *testing.T) {
	filtered := func(regex string) string {
		return valueSetOf("http://x/regex", fmt.Sprintf(`{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"regex","value":%q}]}]}`, regex))
	}
	chain := []string{valueSetOf("http://x/0", `{"include":[{"system":"http://x/colours"}]}`)}
	for i := range 4 {
		chain = append(chain, valueSetOf(fmt.Sprintf("http://x/%d", i+1), fmt.Sprintf(`{"include":[{"valueSet":["http://x/%d"]}]}`, i)))
	}
	inline := func(name string) string { return `{"resourceType":"ValueSet","name":"` + name + `","compose":{}}` }
	largest := inline("a")
	largest += strings.Repeat(" ", maxBody-len(largest))
	resources := func(n int) string {
		return `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/0"}` +
			strings.Repeat(`,{"name":"tx-resource","resource":{"resourceType":"ValueSet"}}`, n) + `]}`
	}
	for _, test := range []struct {
		name                    string
		handler                 *Handler
		options                 definitions.Options
		path, allowed, tooMuch  string // of GET, after path; of POST the bodies
		status                  int
		code                    string
		text                    string
		method                  string
		allowedSet, tooLargeSet string // more definitions
	}{
		{name: "entries", handler: &Handler{Limits: expansion.Limits{Entries: 3}}, path: "/ValueSet/$expand?url=http://x/0&count=", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3"},
		{name: "entries without a page", handler: &Handler{Limits: expansion.Limits{Entries: 3}}, path: "/ValueSet/$expand?url=http://x/0", allowed: "&count=3", tooMuch: "", status: 422, code: "too-costly", text: "offset and count"},
		{name: "filter length", path: "/ValueSet/$expand?url=http://x/0&filter=", allowed: strings.Repeat("a", 1000), tooMuch: strings.Repeat("a", 1001), status: 400, code: "too-long", text: "1000 bytes"},
		{name: "filter words", path: "/ValueSet/$expand?url=http://x/0&filter=", allowed: strings.Repeat("a+", 20), tooMuch: strings.Repeat("a+", 21), status: 400, code: "too-long", text: "20 words"},
		{name: "body", method: "POST", path: "/ValueSet/$expand", allowed: largest, tooMuch: largest + " ", status: 413, code: "too-long", text: "16 MiB"},
		{name: "resources", method: "POST", path: "/ValueSet/$expand", allowed: resources(200), tooMuch: resources(201), status: 413, code: "too-costly", text: "200 tx-resource"},
		{name: "import depth", options: definitions.Options{MaxImportDepth: 3}, path: "/ValueSet/$expand?url=http://x/", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3 deep"},
		{name: "import depth of a validation", options: definitions.Options{MaxImportDepth: 3}, path: "/ValueSet/$validate-code?system=http://x/colours&code=red&url=http://x/", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3 deep"},
		{name: "gathered", options: definitions.Options{MaxGathered: 30}, path: "/ValueSet/$expand?url=http://x/", allowed: "1", tooMuch: "2", status: 422, code: "too-costly", text: "more than 30 codes"},
		{name: "regex", options: definitions.Options{MaxRegexStates: 10}, path: "/ValueSet/$expand?url=http://x/regex", allowedSet: filtered("(a|r)[a-z]+"), tooLargeSet: filtered("(a{3}){5}"), status: 422, code: "too-costly", text: "more than 10"},
		{name: "regex of a validation", options: definitions.Options{MaxRegexStates: 10}, path: "/ValueSet/$validate-code?url=http://x/regex&system=http://x/colours&code=red", allowedSet: filtered("red"), tooLargeSet: filtered("red|brown|black"), status: 422, code: "too-costly", text: "more than 10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ask := func(more, part string) (int, string) {
				h := test.handler
				if h == nil {
					h = &Handler{}
				}
				test.options.Definitions = definitionFiles(t, append([]string{colours, more}, chain...)...)
				l, err := terminology.Load(t.Context(), test.options)
				if err != nil {
					t.Fatal(err)
				}
				h.Library = l
				if test.method == http.MethodPost {
					w, _ := call(t, h, test.method, test.path, part)
					return w.Code, w.Body.String()
				}
				w, _ := call(t, h, http.MethodGet, test.path+part, "")
				return w.Code, w.Body.String()
			}
			if status, body := ask(test.allowedSet, test.allowed); status != http.StatusOK {
				t.Errorf("at the limit: got %d %s", status, body)
			}
			status, body := ask(test.tooLargeSet, test.tooMuch)
			if status != test.status {
				t.Errorf("beyond the limit: got %d %s", status, body)
			}
			wantText(t, body, `"code":"`+test.code+`"`, test.text)
		})
	}
}

// definitionFiles writes resources that are not empty to a folder, each to a file of its own.
func definitionFiles(t *testing.T, resources ...string) []string {
	folder := t.TempDir()
	for i, resource := range resources {
		if resource != "" {
			writeFile(t, filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource))
		}
	}
	return []string{folder}
}

// largeResource returns a code system that is kept off the heap.
func largeResource() string {
	var concepts []string
	for i := range 6000 {
		text := fmt.Sprintf("fever n%d of kind %d", i, i%7) + strings.Repeat(" word", 150)
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","display":%q,"property":[{"code":"parent","valueCode":"c%d"}]}`, i, text, i/9))
	}
	return `{"resourceType":"CodeSystem","url":"s","status":"active","content":"complete","concept":[` + strings.Join(concepts, ",") + "]}"
}

// collect has all collected that nothing refers to, and returns how much there is outside of the heap then.
func collect() int64 {
	for range 3 {
		runtime.GC()
	}
	return offheap.InUse()
}

// wantHeld checks that there is still as much outside of the heap as before.
func wantHeld(t *testing.T, before int64) {
	t.Helper()
	if after := collect(); after < before {
		t.Fatalf("%d bytes of %d are left", after, before)
	}
}

// wantGivenBack checks that there is less outside of the heap than before.
func wantGivenBack(t *testing.T, before int64) {
	t.Helper()
	for range 50 {
		if !leavesHeap() || collect() < before {
			return
		}
	}
	t.Error("nothing is given back")
}

// gcWriter collects garbage whenever one of the first parts of an answer is written.
type gcWriter struct {
	*httptest.ResponseRecorder
	t      *testing.T
	before int64
	parts  int
}

func (w *gcWriter) Write(part []byte) (int, error) {
	if w.parts++; w.parts <= 5 {
		wantHeld(w.t, w.before)
	}
	return w.ResponseRecorder.Write(part)
}

// A library that is replaced while an answer is made of it, and written, stays until it has been.
func TestAnswerHoldsLibrary(t *testing.T) {
	l := libraryOf(t, largeResource(), allOf("s"))
	before := collect()
	h := &Handler{Limits: expansion.Limits{Entries: 10_000}, Current: func() *terminology.Library {
		current := l
		l = nil
		return current
	}}
	w := &gcWriter{ResponseRecorder: httptest.NewRecorder(), t: t, before: before}
	if err := h.Expand(w, httptest.NewRequest("GET", "/ValueSet/$expand?url=s-all", nil)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(w.Body.String(), `"code":`); n != 6000 {
		t.Errorf("%d codes", n)
	}
	wantGivenBack(t, before)
}

// An expansion holds the library that it is of.
func TestExpansionHoldsLibrary(t *testing.T) {
	l := libraryOf(t, largeResource(), allOf("s"))
	before := collect()
	x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: compose.ValueSetRef{URL: "s-all"}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for code := range x.Codes() {
		if n++; n == 6000 {
			x = nil
			wantHeld(t, before)
			if code.Code != "c5999" {
				t.Errorf("got %+v", code)
			}
		}
	}
	wantGivenBack(t, before)
}

// leavesHeap reports whether large arrays can lie outside of the heap on this system.
func leavesHeap() bool {
	var m offheap.Memory
	defer m.Release()
	return m.Take(1) != nil
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, MaxCachedEntries: 3000}) // so small that expansions make room again and again
	if err != nil {
		t.Fatal(err)
	}
	urls := []string{gender, "http://terminology.hl7.org/ValueSet/v3-ActCode", "http://hl7.org/fhir/ValueSet/marital-status", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype", "http://hl7.org/fhir/ValueSet/all-types"}
	want := map[string][]string{}
	for _, url := range urls {
		want[url] = expand(t, coreLibrary(t), "url", url).codes()
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 40 {
				url := urls[(i+n)%len(urls)]
				if got := expand(t, l, "url", url).codes(); !slices.Equal(got, want[url]) {
					t.Errorf("%s: got %v", url, got)
				}
			}
		})
	}
	group.Wait()
}
