package terminology

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex/textindextest"
)

// TestMemoryOfLarge loads a code system that is kept off the heap. It must be the same as one on the heap, and
// its memory must be given back when the library is gone, and not before.
func TestMemoryOfLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var concepts []string
	for i := range 6000 {
		text := textindextest.RandomText(r, 4) + strings.Repeat(" word", 150)
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","display":%q,"property":[{"code":"parent","valueCode":"c%d"}]}`, i, text, i/9))
	}
	resource := `{"resourceType":"CodeSystem","url":"s","status":"active","content":"complete","concept":[` + strings.Join(concepts, ",") + "]}"
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
	a, b := large.codeSystems[0].System, small.codeSystems[0].System
	if !sameArrays(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()) {
		t.Error("not the same off the heap as on it")
	}
	for range 3 {
		runtime.GC()
	}
	if got, _ := a.Locate([]byte("c5999")); got != 5999 {
		t.Errorf("got concept %d, want 5999", got)
	}
	x, y := a.SearchIndex(""), b.SearchIndex("")
	if !sameArrays(reflect.ValueOf(x).Elem(), reflect.ValueOf(y).Elem()) {
		t.Error("not the same index")
	}
	runtime.KeepAlive(large)
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
	if n := l.codes.concepts.Memory.Regions(); n > 1 {
		t.Errorf("%d regions, want one at most", n)
	}
	l.codes.concepts.Memory.Release()
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
