package bcp47_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// languages is the URL of the code system of language tags.
const languages = "urn:ietf:bcp:47"

const (
	swissLanguage = `{"include":[{"system":"urn:ietf:bcp:47","concept":[{"code":"de-CH"},{"code":"fr-CH","display":"Swiss French"},{"code":"it"},{"code":"nonsense"}]}]}`
	withRegion    = `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"region","op":"exists","value":"true"},{"property":"language","op":"=","value":"de"}]}]}`
)

// languageLibrary returns the built-in definitions and value sets of language tags.
func languageLibrary(t *testing.T) *terminology.Library {
	t.Helper()
	l, err := terminologytest.Core(t).WithResources(jsontext.Value(fixture.ValueSet("http://x/swiss", swissLanguage)), jsontext.Value(fixture.ValueSet("http://x/region", withRegion)),
		jsontext.Value(fixture.ValueSet("http://x/not-swiss", `{"include":[{"valueSet":["http://hl7.org/fhir/ValueSet/languages"]}],"exclude":[{"valueSet":["http://x/swiss"]}]}`)),
		jsontext.Value(fixture.ValueSet("http://x/hebrew", `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"canonical","op":"=","value":"iw"}]}]}`)),
		jsontext.Value(fixture.ValueSet("http://x/de", `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"concept","op":"is-a","value":"de"}]}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "bcp-47", languages, true)
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=urn:ietf:bcp:47&code=de_CH": {`"text":"Unknown code 'de_CH' in the CodeSystem 'urn:ietf:bcp:47'"`},
	})
	terminologytest.WantPartialSystem(t, languages, "example", "de-CH")
}

// TestNoReasonOfInvalidCode checks that, as with HL7's servers, the reason for an invalid tag is not a separate issue.
func TestNoReasonOfInvalidCode(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code")
	got := terminologytest.ValidateIn(t, &api.Handler{Library: terminologytest.Core(t)}, languages, "de_CH", "")
	if strings.Contains(got, `"severity":"information"`) {
		t.Errorf("got %s", got)
	}
}

func TestExpandOfGrammar(t *testing.T) {
	l := languageLibrary(t)
	tests := []struct{ name, url, filter, want string }{
		{"listed", "http://x/swiss", "", "de-CH=German (Switzerland), fr-CH=Swiss French, it=Italian, nonsense="},
		{"searched by the display of the code system", "http://x/swiss", "ger swi", "de-CH=German (Switzerland)"},
		{"searched by the value set's own display", "http://x/swiss", "swiss", "fr-CH=Swiss French"},
		{"excluded", "http://x/not-swiss", "ital", "it-CH=Italian (Switzerland), it-IT=Italian (Italy)"},
		{"all", languages + "?fhir_vs", "interlingua", "ia=Interlingua (International Auxiliary Language Association)"},
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
				got = terminologytest.FormatCodes(x.Codes())
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestDefinitionOfGrammar checks that a CodeSystem replaces the built-in code system only if it has concepts.
func TestDefinitionOfGrammar(t *testing.T) {
	for content, want := range map[string]int{"complete": 1, "not-present": 0} {
		l := terminologytest.CoreWith(t, `{"resourceType":"CodeSystem","url":"urn:ietf:bcp:47","status":"active","content":"`+content+`","concept":[{"code":"xx-own"}]}`)
		index := l.Definitions().Systems.CodeSystem(languages, "")
		if got := l.Definitions().Systems.CodeSystems[index].Concepts.Len(); got != want {
			t.Errorf("%s: %d concepts are listed, want %d", content, got, want)
		}
	}
}

func TestLookupOfGrammar(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup", "/CodeSystem/$subsumes")
	h := &api.Handler{Library: terminologytest.Core(t)}
	w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$lookup?system=urn:ietf:bcp:47&code=de-CH&property=language&property=region&property=canonical", "")
	property := func(name, value string) string {
		return `"part":[{"name":"code","valueCode":"` + name + `"},{"name":"value","valueCode":"` + value + `"}]`
	}
	fixture.WantContains(t, w.Body.String(), `"display","valueString":"German (Switzerland)"`, property("language", "de"), property("region", "CH"), property("canonical", "de-CH"))
	if n := strings.Count(w.Body.String(), `"name":"designation"`); n != 6 {
		t.Errorf("%d designations in %s", n, w.Body)
	}
	for _, test := range [][3]string{{"de-CH", "de-CH", "equivalent"}, {"de", "de-CH", "not-subsumed"}} {
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$subsumes?system=urn:ietf:bcp:47&codeA="+test[0]+"&codeB="+test[1], "")
		fixture.WantContains(t, w.Body.String(), `"valueCode":"`+test[2]+`"`)
	}
}

func TestValidateCodeOfGrammar(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
	h := &api.Handler{Library: languageLibrary(t)}
	tests := []struct {
		name, url, code, display string
		want                     string
	}{
		{"listed", "http://x/swiss", "de-CH", "German (Switzerland)", "true German (Switzerland)"},
		{"listed with a display", "http://x/swiss", "fr-CH", "", "true Swiss French"},
		{"listed in another case", "http://x/swiss", "fr-ch", "", "false "},
		{"not listed", "http://x/swiss", "de", "", "false German"},
		{"wrong display", "http://x/swiss", "it", "Italic", "false Italian"},
		{"filter holds", "http://x/region", "de-AT", "", "true German (Austria)"},
		{"filter does not hold", "http://x/region", "de-Latn", "", "false German (Latin)"},
		{"all", languages + "?fhir_vs", "nds", "", "true Low German"},
		{"is-a itself", "http://x/de", "de", "", "true German"},
		{"is-a another", "http://x/de", "de-CH", "", "false German (Switzerland)"},
		{"no such tag, but listed", "http://x/swiss", "nonsense", "", "false "},
		{"no such tag", languages + "?fhir_vs", "de_CH", "", "false "},
		{"code system", "", "de-CH", "", "true German (Switzerland)"},
		{"code system, in another case", "", "de-ch", "", "false "},
		{"code system, no such tag", "", "xx-yy", "", "false "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			query := terminologytest.Query("url", test.url, "system", languages, "code", test.code, "display", test.display)
			path := "/ValueSet/$validate-code?"
			if test.url == "" {
				query = terminologytest.Query("url", languages, "code", test.code, "display", test.display)
				path = "/CodeSystem/$validate-code?"
			}
			w, _ := terminologytest.Call(t, h, "GET", path+query, "")
			var answer struct {
				Parameter []struct {
					Name         string
					ValueBoolean bool
					ValueString  string
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			valid, display := false, ""
			for _, p := range answer.Parameter {
				switch p.Name {
				case "result":
					valid = p.ValueBoolean
				case "display":
					display = p.ValueString
				}
			}
			if got := fmt.Sprint(valid, " ", display); got != test.want {
				t.Errorf("got %s, want %s: %s", got, test.want, w.Body)
			}
		})
	}
}
