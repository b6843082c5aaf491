package definitions

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// fixedTime is the clock of the libraries in tests.
var fixedTime = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// core returns the built-in definitions, loaded once.
var core = sync.OnceValues(func() (*Set, error) {
	return Load(context.Background(), Options{Core: true, Now: func() time.Time { return fixedTime }})
})

// coreSet returns the built-in definitions.
func coreSet(t testing.TB) *Set {
	t.Helper()
	l, err := core()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// setOf loads the given resources, each from a file of its own, in order.
func setOf(t testing.TB, resources ...string) *Set {
	t.Helper()
	folder := t.TempDir()
	for i, resource := range resources {
		writeFile(t, filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource))
	}
	l, err := Load(t.Context(), Options{Definitions: []string{folder}, Now: func() time.Time { return fixedTime }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// writeFile writes a file with the folders above it.
func writeFile(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantText checks that a text has all the given parts in it.
func wantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %q, want %q in it", text, part)
		}
	}
}

// valueSetOf returns a value set with the given compose.
func valueSetOf(url, compose string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%q,"status":"active","compose":%s}`, url, compose)
}

// codeSystemWith returns a code system with one concept.
func codeSystemWith(url, version, code string) string {
	return fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"version":%q,"status":"active","content":"complete","concept":[{"code":%q}]}`, url, version, code)
}

// tgz returns a FHIR package with the given files, whose names and contents take turns.
func tgz(t testing.TB, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for i := 0; i < len(files); i += 2 {
		if err := archive.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// repeat writes a list of n elements, made of their numbers.
func repeat(n int, element func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = element(i)
	}
	return strings.Join(list, ",")
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

// leavesHeap reports whether large arrays can lie outside of the heap on this system.
func leavesHeap() bool {
	var m offheap.Memory
	defer m.Release()
	return m.Take(1) != nil
}

const colours = `{"resourceType":"CodeSystem","url":"http://x/colours","version":"1.0.0","status":"active","content":"complete",
	"concept":[{"code":"any","display":"Any colour","concept":[{"code":"red","display":"Red"},{"code":"green","display":"Green"},{"code":"pink","display":"Pink"}]}]}`

const animals = `{"resourceType":"CodeSystem","url":"http://x/animals","version":"1.0.0","status":"active","content":"complete",
"caseSensitive":false,
"property":[{"code":"legs","type":"integer"},{"code":"kind","type":"code"},{"code":"status","type":"code"}],
"concept":[
 {"code":"animal","display":"Animal","property":[{"code":"notSelectable","valueBoolean":true}],"concept":[
  {"code":"mammal","display":"Mammal","property":[{"code":"legs","valueInteger":4}],"concept":[
   {"code":"dog","display":"Dog","property":[{"code":"kind","valueCode":"tame"},{"code":"legs","valueInteger":4}]},
   {"code":"bat","display":"Bat","property":[{"code":"parent","valueCode":"flyer"},{"code":"kind","valueCode":"wild"}]}]},
  {"code":"flyer","display":"Flyer","property":[{"code":"child","valueCode":"fly"}]},
  {"code":"fly","display":"Fly","property":[{"code":"legs","valueInteger":6},{"code":"kind","valueCode":"wild"},{"code":"kind","valueCode":"pest"}]}]},
 {"code":"dodo","display":"Dodo","property":[{"code":"status","valueCode":"retired"}]},
 {"code":"chimera"}]}`
