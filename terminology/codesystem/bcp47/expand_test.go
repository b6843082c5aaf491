package bcp47_test

import (
	"errors"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestExpandOfGrammar(t *testing.T) {
	l := terminologytest.LanguageLibrary(t)
	tests := []struct{ name, url, filter, want string }{
		{"listed", "http://x/swiss", "", "de-CH=German (Switzerland), fr-CH=Swiss French, it=Italian, nonsense="},
		{"searched by the display of the code system", "http://x/swiss", "ger swi", "de-CH=German (Switzerland)"},
		{"searched by the value set's own display", "http://x/swiss", "swiss", "fr-CH=Swiss French"},
		{"excluded", "http://x/not-swiss", "ital", "it-CH=Italian (Switzerland), it-IT=Italian (Italy)"},
		{"all", terminologytest.Languages + "?fhir_vs", "interlingua", "ia=Interlingua (International Auxiliary Language Association)"},
		{"filtered, without one in common use", "http://x/region", "", ""},
		{"filtered by the canonical form", "http://x/hebrew", "", "he=Hebrew"},
		{"by hierarchy", "http://x/de", "", "de=German"},
		{"all, of R4", "http://hl7.org/fhir/ValueSet/all-languages", "german",
			"de=German, gem=Germanic languages, gsw=Swiss German, nds=Low German, goh=Old High German (ca. 750-1050), gmh=Middle High German (ca. 1050-1500)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: compose.ValueSetRef{URL: test.url}, Page: expansion.Page{Filter: test.filter}})
			var got string
			if e, ok := errors.AsType[*outcome.Error](err); ok {
				got = e.Code
			} else if err != nil {
				t.Fatal(err)
			} else {
				got = terminologytest.Shown(x.Codes())
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// A definition with concepts goes before what the program knows, one without does not.
func TestDefinitionOfGrammar(t *testing.T) {
	for content, want := range map[string]int{"complete": 1, "not-present": 0} {
		folder := t.TempDir()
		fixture.WriteFile(t, folder+"/cs.json", []byte(`{"resourceType":"CodeSystem","url":"urn:ietf:bcp:47","status":"active","content":"`+content+`","concept":[{"code":"xx-own"}]}`))
		l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{folder}})
		if err != nil {
			t.Fatal(err)
		}
		index := l.Definitions().Systems.CodeSystem(terminologytest.Languages, "")
		if got := l.Definitions().Systems.CodeSystems[index].Concepts.Len(); got != want {
			t.Errorf("%s: %d concepts are listed, want %d", content, got, want)
		}
	}
}
