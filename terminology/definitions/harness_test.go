package definitions

import (
	"context"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// core loads the built-in definitions once.
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

// setOf returns a Set loaded from the given resources in order, each in a separate file.
func setOf(t testing.TB, resources ...string) *Set {
	t.Helper()
	l, err := Load(t.Context(), Options{Definitions: fixture.Files(t, resources...), Now: func() time.Time { return fixture.Time }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
