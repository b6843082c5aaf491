package terminologytest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Time is the clock of the libraries in tests.
var Time = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// core returns a library of the built-in definitions, loaded once.
var core = sync.OnceValues(func() (*terminology.Library, error) {
	return terminology.Load(context.Background(), definitions.Options{Core: true, Now: func() time.Time { return Time }})
})

// Core returns the library of the built-in definitions.
func Core(t testing.TB) *terminology.Library {
	t.Helper()
	l, err := core()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Library loads the given resources, each from a file of its own, in order.
func Library(t testing.TB, resources ...string) *terminology.Library {
	t.Helper()
	folder := t.TempDir()
	for i, resource := range resources {
		WriteFile(t, filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource))
	}
	l, err := terminology.Load(context.Background(), definitions.Options{Definitions: []string{folder}, Now: func() time.Time { return Time }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// WriteFile writes a file with the folders above it.
func WriteFile(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
