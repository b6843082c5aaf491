package terminology

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestSettle(t *testing.T) {
	m := new(memory)
	long, short := make([]uint32, smallest), make([]uint32, 3)
	for i := range long {
		long[i] = uint32(i)
	}
	want, before := slices.Clone(long), &long[0]
	settle(m, &long, &short)
	if !slices.Equal(long, want) || len(short) != 3 {
		t.Error("content has changed")
	}
	if mapsMemory() && (&long[0] == before || len(m.regions) != 1) {
		t.Errorf("%d regions, want 1 for the long list", len(m.regions))
	}
	m.release()
	if m.regions != nil {
		t.Error("regions left")
	}
}

func TestMemoryGrows(t *testing.T) {
	var m memory
	defer m.release()
	var list texts
	list.append([]byte("first"))
	for range 3 {
		list = m.grown(list, 10)
		list.append([]byte("next"))
	}
	if got := string(list[1:]); got != "\x05first\x04next\x04next\x04next" {
		t.Errorf("got %q", got)
	}
	if len(m.regions) > 1 {
		t.Errorf("%d regions, want that of the last growth alone", len(m.regions))
	}
	if len(m.regions) == 1 && !m.holds(list) {
		t.Error("not in memory")
	}
	if m.holds(append(list, make([]byte, 1<<20)...)) {
		t.Error("holds what has moved to the heap")
	}
}

// TestMemoryOfLarge loads a code system that is kept off the heap. It must be the same as one on the heap, and
// its memory must be given back when the library is gone, and not before.
func TestMemoryOfLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var concepts []string
	for i := range 6000 {
		text := randomText(r, 4) + strings.Repeat(" word", 150)
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","display":%q,"property":[{"code":"parent","valueCode":"c%d"}]}`, i, text, i/9))
	}
	resource := `{"resourceType":"CodeSystem","url":"s","status":"active","content":"complete","concept":[` + strings.Join(concepts, ",") + "]}"
	before := offHeap.Load()
	large := libraryOf(t, resource)
	if mapsMemory() && offHeap.Load()-before < largeText {
		t.Error("all is on the heap")
	}
	small, err := emptyLibrary().with(nil)
	if err != nil {
		t.Fatal(err)
	}
	loader := newResourceLoader(small) // of a request
	if err := loader.resource(newReader(strings.NewReader(resource))); err != nil {
		t.Fatal(err)
	}
	a, b := large.codeSystems[0], small.codeSystems[0]
	if !bytes.Equal(a.texts, b.texts) || !slices.Equal(a.code, b.code) || !slices.Equal(a.display, b.display) || !slices.Equal(a.parents.to, b.parents.to) {
		t.Error("not the same off the heap as on it")
	}
	for range 3 {
		runtime.GC()
	}
	if got, _ := a.concept([]byte("c5999")); got != 5999 {
		t.Errorf("got concept %d, want 5999", got)
	}
	x, y := a.searchIndex(""), b.searchIndex("")
	if !bytes.Equal(x.postings, y.postings) || !slices.Equal(x.common.first, y.common.first) || !slices.Equal(x.displays.all, y.displays.all) {
		t.Error("not the same index")
	}
	runtime.KeepAlive(large)
}

// TestMemoryIsReleased checks that the memory of what is gone is given back.
func TestMemoryIsReleased(t *testing.T) {
	before := offHeap.Load()
	owner, m := new([100]byte), new(memory)
	m.take(1 << 20)
	owned(owner, m)
	runtime.GC()
	if mapsMemory() && len(m.regions) != 1 {
		t.Fatal("released too soon")
	}
	runtime.KeepAlive(owner)
	for offHeap.Load() > before { // the cleanup runs some time after the collection
		runtime.GC()
	}
}

// mapsMemory reports whether there is memory off the heap on this system.
func mapsMemory() bool {
	region := mapped(1)
	if region == nil {
		return false
	}
	unmap(region)
	return true
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
	if len(l.codes.memory.regions) > 1 {
		t.Errorf("%d regions, want one at most", len(l.codes.memory.regions))
	}
	l.codes.memory.release()
}
