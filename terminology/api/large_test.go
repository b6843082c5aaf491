package api

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/textindextest"
)

// largeResource returns a code system that is kept off the heap.
func largeResource() string {
	r := rand.New(rand.NewPCG(4, 4))
	var concepts []string
	for i := range 6000 {
		text := textindextest.RandomText(r, 4) + strings.Repeat(" word", 150)
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

// gcWriter collects garbage whenever a part of an answer is written.
type gcWriter struct {
	*httptest.ResponseRecorder
	t      *testing.T
	before int64
}

func (w gcWriter) Write(part []byte) (int, error) {
	wantHeld(w.t, w.before)
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
	w := gcWriter{httptest.NewRecorder(), t, before}
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
