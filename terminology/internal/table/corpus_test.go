package table

import (
	"fmt"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// TestLanguageKey checks which language lists share a search index.
func TestLanguageKey(t *testing.T) {
	cs := &Table{designations: designations{languages: []string{"", "de", "fr", "fr-CA"}}, language: "en"}
	key := func(list string) string {
		wanted := codesystem.ParseLanguages(list)
		return wanted.Key(languages(cs))
	}
	for _, same := range [][2]string{{"de", "de-ch"}, {"xx", "yy-zz"}, {"en", "en-us"}, {"de,fr", "xx,de-AT,fr;q=0.1"}, {"", "xx;q=0"}} {
		if key(same[0]) != key(same[1]) {
			t.Errorf("%q and %q do not share an index", same[0], same[1])
		}
	}
	keys := map[string]string{}
	for _, list := range []string{"", "de", "fr", "fr-ca", "fr-be", "en", "xx", "*", "de,fr", "fr,de", "de,*", "de,*;q=0", "*;q=0"} {
		if other, ok := keys[key(list)]; ok {
			t.Errorf("%q and %q share an index", list, other)
		}
		keys[key(list)] = list
	}
}

// TestIndexesAreBounded checks that the number of indexes stays bounded even if clients request many languages.
func TestIndexesAreBounded(t *testing.T) {
	var s searchIndexes
	build := func() *textindex.Index { return textindex.New(&conceptCorpus{table: new(Table)}) }
	first := s.get("", build)()
	for i := range 100 {
		s.get(fmt.Sprint(i), build)()
		if len(s.byLanguage) > maxIndexes+1 {
			t.Fatalf("%d indexes are kept", len(s.byLanguage))
		}
	}
	last := s.get("99", build)()
	if s.get("", build)() != first || s.get("99", build)() != last {
		t.Error("an index was built again")
	}
}
