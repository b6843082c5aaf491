package terminologytest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/standard" // code systems
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// core loads the built-in definitions.
var core = sync.OnceValues(func() (*terminology.Library, error) {
	return terminology.Load(context.Background(), definitions.Options{Core: true})
})

// Core returns a library of the built-in definitions, which are loaded once.
func Core(t testing.TB) *terminology.Library {
	t.Helper()
	l, err := core()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Library returns a library of the given resources in JSON, loaded in this order.
func Library(t testing.TB, resources ...string) *terminology.Library {
	t.Helper()
	folder := t.TempDir()
	for i, resource := range resources {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
