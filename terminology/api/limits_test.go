package api_test

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

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
	l := terminologytest.Library(t, largeResource(), fixture.AllOf("s"))
	before := collect()
	h := &api.Handler{Limits: expansion.Limits{Entries: 10_000}, Current: func() *terminology.Library {
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
	l := terminologytest.Library(t, largeResource(), fixture.AllOf("s"))
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
		want[url] = terminologytest.Expand(t, terminologytest.Core(t), "url", url).Codes()
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 40 {
				url := urls[(i+n)%len(urls)]
				if got := terminologytest.Expand(t, l, "url", url).Codes(); !slices.Equal(got, want[url]) {
					t.Errorf("%s: got %v", url, got)
				}
			}
		})
	}
	group.Wait()
}
