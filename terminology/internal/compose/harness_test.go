package compose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
)

// library is a set of definitions with the expansions made of it.
type library struct {
	set        *definitions.Set
	expansions *CodeListCache
}

// expanding returns what expands value sets of a library by no rules, with a budget or without bounds.
func (l *library) expanding(b *budget.Budget) *Expander {
	return &Expander{Library: l.set, Cache: l.expansions, Rules: &Rules{}, Budget: b}
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

// coreLibrary returns the library of the built-in definitions, loaded once.
func coreLibrary(t testing.TB) *library {
	t.Helper()
	coreOnce.Do(func() { core = load(t, definitions.Options{Core: true}) })
	return core
}

// filesOf writes resources to files of their own, and returns their names in order.
func filesOf(t testing.TB, resources ...string) (files []string) {
	t.Helper()
	folder := t.TempDir()
	for i, resource := range resources {
		files = append(files, filepath.Join(folder, fmt.Sprintf("%03d.json", i)))
		if err := os.WriteFile(files[i], []byte(resource), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// libraryOf loads the given resources in order.
func libraryOf(t testing.TB, resources ...string) *library {
	t.Helper()
	return load(t, definitions.Options{Definitions: filesOf(t, resources...)})
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

// allOf returns a value set of all codes of a system, at the system's url with -all after it.
func allOf(url string) string {
	return valueSetOf(url+"-all", fmt.Sprintf(`{"include":[{"system":%q}]}`, url))
}

// limbs is a code system in two languages, with one designation that says no language.
func limbs(concepts int) string {
	var b strings.Builder
	b.WriteString(`{"resourceType":"CodeSystem","url":"http://x/limbs","language":"en","content":"complete","concept":[
		{"code":"1","display":"Arm","designation":[{"language":"de","value":"Oberarm"},{"language":"fr","value":"Bras"}]},
		{"code":"2","display":"Leg","designation":[{"language":"de-CH","value":"Bein"},{"value":"limb"}]},
		{"code":"3","display":"Bone"}`)
	for i := 4; i <= concepts; i++ {
		fmt.Fprintf(&b, `,{"code":"%d","display":"Filler"}`, i)
	}
	b.WriteString(`]}`)
	return b.String()
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
