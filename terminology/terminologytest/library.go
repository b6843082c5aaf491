package terminologytest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// core returns a library of the built-in definitions, loaded once.
var core = sync.OnceValues(func() (*terminology.Library, error) {
	return terminology.Load(context.Background(), definitions.Options{Core: true, Now: func() time.Time { return fixture.Time }})
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
	l, err := terminology.Load(context.Background(), definitions.Options{Definitions: fixture.Files(t, resources...), Now: func() time.Time { return fixture.Time }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
