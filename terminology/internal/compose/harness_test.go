package compose

import (
	"sync"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// library is a Set of definitions with a cache of its expansions.
type library struct {
	set        *definitions.Set
	expansions *CodeListCache
}

// expanding returns an expander with empty rules and the given budget; nil means unlimited.
func (l *library) expanding(b *budget.Budget) *Expander {
	return &Expander{Definitions: l.set, Cache: l.expansions, Rules: &Rules{}, Budget: b}
}

func load(t testing.TB, o definitions.Options) *library {
	t.Helper()
	set, err := definitions.Load(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &library{set: set, expansions: NewCodeListCache(1_000_000)}
}

var (
	core     *library
	coreOnce sync.Once
)

// coreLibrary returns a library of the built-in definitions, which are loaded once.
func coreLibrary(t testing.TB) *library {
	t.Helper()
	coreOnce.Do(func() { core = load(t, definitions.Options{Core: true}) })
	return core
}

// libraryOf returns a library with the given resources, loaded in order.
func libraryOf(t testing.TB, resources ...string) *library {
	t.Helper()
	return load(t, definitions.Options{Definitions: fixture.Files(t, resources...)})
}

const colours = `{"resourceType":"CodeSystem","url":"http://x/colours","version":"1.0.0","status":"active","content":"complete",
	"concept":[{"code":"any","display":"Any colour","concept":[{"code":"red","display":"Red"},{"code":"green","display":"Green"},{"code":"pink","display":"Pink"}]}]}`
