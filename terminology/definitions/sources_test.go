package definitions

import (
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestBuiltInIsComplete checks that reading a built-in code system returns a CodeSystem with the content that R4 requires. Its
// content element states that concepts are present only if the response contains them.
func TestBuiltInIsComplete(t *testing.T) {
	for _, sensitive := range []string{"true", "false"} {
		for content, system := range map[string]codesystem.System{`"not-present"`: nil, `"complete"`: embeddedtable.New(nil)} {
			cs, err := newSourceSystem(codesystem.Source{
				URL: "http://x/own", CaseSensitive: sensitive == "true", Copyright: "ours", System: system,
				Members: `{"title":"Own","hierarchyMeaning":"part-of"}`,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, m := range cs.OtherMembers {
				got[m.Name] = string(m.Value)
			}
			if got["content"] != content || got["caseSensitive"] != sensitive || got["copyright"] != `"ours"` || cs.Title != "Own" || !cs.NotSubsuming {
				t.Errorf("got %v %+v", got, cs.Definition)
			}
		}
	}
}

// TestWeighedSource checks that weights from files apply to packed tables like to any other code system.
func TestWeighedSource(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	table := embeddedtable.New(w.EncodeAll([]byte(fixture.SingleConceptCodeSystem("http://x/own", "1", "a")), nil))
	file := filepath.Join(t.TempDir(), "w.csv")
	fixture.WriteFile(t, file, []byte("#! http://x/own\na,7\n"))
	l, err := Load(t.Context(), Options{Weights: []string{file}, Sources: []codesystem.Source{{URL: "http://x/own", System: table}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Systems.CodeSystems[0].Concepts.Searchable.SearchWeight(0); got != 7 {
		t.Errorf("got %v", got)
	}
}
