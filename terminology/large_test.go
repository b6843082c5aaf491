package terminology

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex/textindextest"
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

// TestMemoryOfLarge loads a code system that is kept off the heap. It must be the same as one on the heap, and
// its memory must be given back when the library is gone, and not before.
func TestMemoryOfLarge(t *testing.T) {
	resource := largeResource()
	before := offheap.InUse()
	large := libraryOf(t, resource)
	if leavesHeap() && offheap.InUse()-before < 4<<20 {
		t.Error("all is on the heap")
	}
	small, err := emptyLibrary().With()
	if err != nil {
		t.Fatal(err)
	}
	loader := newResourceLoader(small) // of a request
	if err := loader.resource(fhirjson.NewReader(strings.NewReader(resource))); err != nil {
		t.Fatal(err)
	}
	a, b := large.set.codeSystems[0].concepts, small.codeSystems[0].concepts
	if !sameArrays(reflect.ValueOf(a.System).Elem(), reflect.ValueOf(b.System).Elem()) {
		t.Error("not the same off the heap as on it")
	}
	for range 3 {
		runtime.GC()
	}
	if got, _ := a.Locate([]byte("c5999")); got.Number != 5999 {
		t.Errorf("got concept %d, want 5999", got.Number)
	}
	x, y := a.Search.SearchIndex(""), b.Search.SearchIndex("")
	if !sameArrays(reflect.ValueOf(x).Elem(), reflect.ValueOf(y).Elem()) {
		t.Error("not the same index")
	}
	runtime.KeepAlive(large)
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

// Nothing but use holds the library here while a text of it is read.
func TestUseHoldsLibrary(t *testing.T) {
	read := func(l *Library, f func(code []byte)) {
		l.set.use(func() { f(l.set.codeSystems[0].concepts.Code(codesystem.At(5999))) })
	}
	held := libraryOf(t, largeResource())
	before := collect()
	read(held, func(code []byte) {
		held = nil
		wantHeld(t, before)
		if string(code) != "c5999" {
			t.Errorf("got %s", code)
		}
	})
	wantGivenBack(t, before)
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
	h := &Handler{Limits: Limits{Entries: 10_000}, Current: func() *Library {
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
	x, err := l.Expand(t.Context(), Query{ValueSetRef: ValueSetRef{URL: "s-all"}})
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

// TestBrokenLargeFile checks that what was read of a large file that breaks off is given back.
func TestBrokenLargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken.json")
	concept := fmt.Sprintf(`{"code":"%%d","display":%q},`, strings.Repeat("x", 10_000))
	var text strings.Builder
	text.WriteString(`{"resourceType":"CodeSystem","url":"s","content":"complete","concept":[`)
	for i := range 600 {
		fmt.Fprintf(&text, concept, i)
	}
	writeFile(t, file, []byte(text.String()))
	l := newResourceLoader(emptyLibrary())
	l.options = &Options{}
	l.options.setDefaults()
	if err := l.file(t.Context(), file); err == nil {
		t.Fatal("a broken file was read")
	}
	if n := l.codes.table.Memory.Regions(); n > 1 {
		t.Errorf("%d regions, want one at most", n)
	}
	l.codes.table.Memory.Release()
}

// leavesHeap reports whether large arrays can lie outside of the heap on this system.
func leavesHeap() bool {
	var m offheap.Memory
	defer m.Release()
	return m.Take(1) != nil
}

// sameArrays reports whether two values, or the structs of arrays that they are, hold the same numbers.
func sameArrays(a, b reflect.Value) bool {
	same := a.Kind() != reflect.Slice || a.Len() == b.Len()
	switch {
	case a.CanUint():
		return a.Uint() == b.Uint()
	case a.Kind() == reflect.Slice:
		for i := 0; same && i < a.Len(); i++ {
			same = sameArrays(a.Index(i), b.Index(i))
		}
	case a.Kind() == reflect.Struct:
		for i := 0; same && i < a.NumField(); i++ {
			same = sameArrays(a.Field(i), b.Field(i))
		}
	}
	return same
}
