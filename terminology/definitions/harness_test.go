package definitions

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// core returns the built-in definitions, loaded once.
var core = sync.OnceValues(func() (*Set, error) {
	return Load(context.Background(), Options{Core: true, Now: func() time.Time { return fixture.Time }})
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
	l, err := Load(t.Context(), Options{Definitions: fixture.Files(t, resources...), Now: func() time.Time { return fixture.Time }})
	if err != nil {
		t.Fatal(err)
	}
	return l
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
