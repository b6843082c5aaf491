package definitions

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestMemoryOfLarge loads a code system that is kept off the heap. It must be the same as one on the heap, and
// its memory must be given back when the library is gone, and not before.
func TestMemoryOfLarge(t *testing.T) {
	resource := largeResource()
	before := offheap.InUse()
	large := setOf(t, resource)
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
	a, b := large.Systems.CodeSystems[0].Concepts, small.Systems.CodeSystems[0].Concepts
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

// Nothing but use holds the library here while a text of it is read.
func TestUseHoldsLibrary(t *testing.T) {
	read := func(l *Set, f func(code []byte)) {
		l.Use(func() { f(l.Systems.CodeSystems[0].Concepts.Code(codesystem.At(5999))) })
	}
	held := setOf(t, largeResource())
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

// TestBrokenLargeFile checks that what was read of a large file that breaks off is given back.
func TestBrokenLargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broken.json")
	concept := fmt.Sprintf(`{"code":"%%d","display":%q},`, strings.Repeat("x", 10_000))
	var text strings.Builder
	text.WriteString(`{"resourceType":"CodeSystem","url":"s","content":"complete","concept":[`)
	for i := range 600 {
		fmt.Fprintf(&text, concept, i)
	}
	fixture.WriteFile(t, file, []byte(text.String()))
	l := newResourceLoader(emptyLibrary())
	l.options = &Options{}
	l.options.SetDefaults()
	if err := l.file(t.Context(), file); err == nil {
		t.Fatal("a broken file was read")
	}
	if n := l.codes.table.Memory.Regions(); n > 1 {
		t.Errorf("%d regions, want one at most", n)
	}
	l.codes.table.Memory.Release()
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
