package api

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/validate"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

const (
	tags          = "urn:ietf:bcp:47"
	swissLanguage = `{"include":[{"system":"urn:ietf:bcp:47","concept":[{"code":"de-CH"},{"code":"fr-CH","display":"Swiss French"},{"code":"it"},{"code":"nonsense"}]}]}`
	withRegion    = `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"region","op":"exists","value":"true"},{"property":"language","op":"=","value":"de"}]}]}`
)

// languageLibrary returns the built-in definitions with value sets of language tags.
func languageLibrary(t *testing.T) *terminology.Library {
	t.Helper()
	l, err := coreLibrary(t).With(jsontext.Value(valueSetOf("http://x/swiss", swissLanguage)), jsontext.Value(valueSetOf("http://x/region", withRegion)),
		jsontext.Value(valueSetOf("http://x/not-swiss", `{"include":[{"valueSet":["http://hl7.org/fhir/ValueSet/languages"]}],"exclude":[{"valueSet":["http://x/swiss"]}]}`)),
		jsontext.Value(valueSetOf("http://x/hebrew", `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"canonical","op":"=","value":"iw"}]}]}`)),
		jsontext.Value(valueSetOf("http://x/de", `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"concept","op":"is-a","value":"de"}]}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// shown are the codes of an expansion, each as code=display.
func shown(codes iter.Seq[expansion.Code]) string {
	var list []string
	for c := range codes {
		list = append(list, c.Code+"="+c.Display)
	}
	return strings.Join(list, ", ")
}

func TestExpandOfGrammar(t *testing.T) {
	l := languageLibrary(t)
	tests := []struct{ name, url, filter, want string }{
		{"listed", "http://x/swiss", "", "de-CH=German (Switzerland), fr-CH=Swiss French, it=Italian, nonsense="},
		{"searched by the display of the code system", "http://x/swiss", "ger swi", "de-CH=German (Switzerland)"},
		{"searched by the value set's own display", "http://x/swiss", "swiss", "fr-CH=Swiss French"},
		{"excluded", "http://x/not-swiss", "ital", "it-CH=Italian (Switzerland), it-IT=Italian (Italy)"},
		{"all", tags + "?fhir_vs", "interlingua", "ia=Interlingua (International Auxiliary Language Association)"},
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
				got = shown(x.Codes())
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestValidateCodeOfGrammar(t *testing.T) {
	l := languageLibrary(t)
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
		{"all", tags + "?fhir_vs", "nds", "", "true Low German"},
		{"is-a itself", "http://x/de", "de", "", "true German"},
		{"is-a another", "http://x/de", "de-CH", "", "false German (Switzerland)"},
		{"no such tag, but listed", "http://x/swiss", "nonsense", "", "false "},
		{"no such tag", tags + "?fhir_vs", "de_CH", "", "false "},
		{"code system", "", "de-CH", "", "true German (Switzerland)"},
		{"code system, in another case", "", "de-ch", "", "false "},
		{"code system, no such tag", "", "xx-yy", "", "false "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q := validate.Validation{ValueSetRef: compose.ValueSetRef{URL: test.url}, Codings: []parameters.Coding{{System: tags, Code: test.code, Display: test.display}}}
			ask := l.ValidateCode
			if test.url == "" {
				ask = l.ValidateCodeInSystem
			}
			r, err := ask(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			display := ""
			if r.Found != nil {
				display = r.Found.Display
			}
			if got := fmt.Sprint(r.Valid, " ", display); got != test.want {
				t.Errorf("got %s, want %s: %s", got, test.want, r.Message)
			}
		})
	}
}

func TestLookupOfGrammar(t *testing.T) {
	l := coreLibrary(t)
	c, err := l.Lookup(t.Context(), terminology.Lookup{Coding: parameters.Coding{System: tags, Code: "de-CH"}, Properties: []string{"language", "region", "canonical"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.Code, " ", c.Display, " ", c.Properties, len(c.Designations)); got != "de-CH German (Switzerland) [{language valueCode de  } {region valueCode CH  } {canonical valueCode de-CH  }] 6" {
		t.Errorf("got %s", got)
	}
	for _, test := range [][3]string{{"de-CH", "de-CH", "equivalent"}, {"de", "de-CH", "not-subsumed"}} {
		if got, err := l.Subsumes(t.Context(), parameters.Coding{System: tags, Code: test[0]}, parameters.Coding{Code: test[1]}); got != test[2] || err != nil {
			t.Errorf("%s and %s: got %s, %v", test[0], test[1], got, err)
		}
	}
}

// A definition with concepts goes before what the program knows, one without does not.
func TestDefinitionOfGrammar(t *testing.T) {
	for content, want := range map[string]int{"complete": 1, "not-present": 0} {
		folder := t.TempDir()
		writeFile(t, folder+"/cs.json", []byte(`{"resourceType":"CodeSystem","url":"urn:ietf:bcp:47","status":"active","content":"`+content+`","concept":[{"code":"xx-own"}]}`))
		l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{folder}})
		if err != nil {
			t.Fatal(err)
		}
		index := l.Definitions().Systems.CodeSystem(tags, "")
		if got := l.Definitions().Systems.CodeSystems[index].Concepts.Len(); got != want {
			t.Errorf("%s: %d concepts are listed, want %d", content, got, want)
		}
	}
}

// bare is a code system of one concept that has no optional interface but List.
type bare struct{}

func (bare) Len() int                         { return 1 }
func (bare) AppendConcepts(dst []byte) []byte { return dst }
func (bare) Code(codesystem.Concept) []byte   { return []byte("one") }
func (bare) Language() string                 { return "" }
func (bare) Locate(code []byte) (codesystem.Concept, bool) {
	return codesystem.At(0), string(code) == "one"
}

func (b bare) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return b.Code(c), []byte("First"), 0
}

func (bare) AppendTexts(dst []codesystem.Text, _ codesystem.Concept) []codesystem.Text {
	return append(dst, codesystem.Text{Value: []byte("First"), Display: true})
}

func (bare) AppendValues(dst []codesystem.Value, _ codesystem.Concept) []codesystem.Value { return dst }

// TestBareCodeSystem asks each operation about a code system that has only what it must.
func TestBareCodeSystem(t *testing.T) {
	l := libraryOf(t, valueSetOf("http://x/is-a", `{"include":[{"system":"http://x/bare","filter":[{"property":"concept","op":"is-a","value":"one"}]}]}`))
	l.Definitions().Systems.AddCodeSystem(&definitions.CodeSystem{Definition: definitions.Definition{URL: "http://x/bare"}, Concepts: codesystem.Of(bare{}), Content: definitions.ContentComplete})
	one := parameters.Coding{System: "http://x/bare", Code: "one"}
	for _, url := range []string{"http://x/bare?fhir_vs", "http://x/is-a"} {
		for filter, want := range map[string]string{"": "one=First", "fi": "one=First", "second": ""} {
			x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: compose.ValueSetRef{URL: url}, Page: expansion.Page{Filter: filter}})
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(x.Codes()); got != want {
				t.Errorf("%s, %q: got %s, want %s", url, filter, got, want)
			}
		}
		r, err := l.ValidateCode(t.Context(), validate.Validation{ValueSetRef: compose.ValueSetRef{URL: url}, Codings: []parameters.Coding{one}})
		if err != nil || !r.Valid {
			t.Errorf("%s: got %+v, %v", url, r, err)
		}
	}
	if c, err := l.Lookup(t.Context(), terminology.Lookup{Coding: one, Properties: []string{"*"}}); err != nil || c.Display != "First" {
		t.Errorf("got %+v, %v", c, err)
	}
	if outcome, err := l.Subsumes(t.Context(), one, one); err != nil || outcome != "equivalent" {
		t.Errorf("got %s, %v", outcome, err)
	}
}

// TestBombWhileWatched has a good package replaced by one that was made to fill the memory: what was loaded stays.
func TestBombWhileWatched(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tgz")
	writeFile(t, name, tgz(t, "package/a.json", colours))
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{name}, MaxPackage: 1 << 20}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	before := w.Current()
	writeFile(t, name, tgz(t, "package/a.json", colours, "package/b.json", strings.Repeat(" ", 1<<20)))
	var large *fhirjson.TooLargeError
	if err := w.Refresh(t.Context()); !errors.As(err, &large) {
		t.Errorf("got %v", err)
	}
	if w.Current() != before || w.State().Err == nil {
		t.Error("what was loaded before is not in use, or the error is not told")
	}
}

// TestBroughtDefinitionsAreBounded brings along what takes many times as much memory, or time, as it is long.
func TestBroughtDefinitionsAreBounded(t *testing.T) {
	bundle := func(n int, resource func(i int) string) string {
		return `{"resourceType":"Bundle","entry":[` + repeat(n, func(i int) string { return `{"resource":` + resource(i) + `}` }) + `]}`
	}
	version := func(i int) string {
		return fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}`, i)
	}
	empty := func(int) string { return `{"resourceType":"ValueSet"}` }
	half := strings.Repeat("{},", fhirjson.MaxShort/(160-4)*6/10)
	for _, test := range []struct{ name, brought, want string }{
		{"empty elements", `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", fhirjson.MaxShort/(160-4)) + `{}]}]}`, "elements of a few bytes"},
		{"empty elements in two resources", `{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}},{"name":"tx-resource","resource":` +
			`{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}`, "elements of a few bytes"},
		{"empty elements before the type", `{"group":[{"element":[` + half + `{}]}],"group":[{"element":[` + half + `{}]}],"resourceType":"ConceptMap"}`, "elements of a few bytes"},
		{"a long url", `{"resourceType":"CodeSystem","url":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long version", `{"resourceType":"CodeSystem","url":"http://x/b","version":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long system", valueSetOf("http://x/vs", `{"include":[{"system":"`+strings.Repeat("x", fhirjson.MaxName+1)+`"}]}`), "a url or version is larger than"},
		{"as many versions of a code system as may be", bundle(100, version), ""},
		{"versions of a code system", bundle(100+1, version), "more than 100 versions"},
		{"as many definitions as may be", bundle(10_000-1, empty), ""}, // the Bundle is one
		{"definitions", bundle(10_000, empty), "more than 10000 definitions"},
		{"contained definitions", `{"resourceType":"ValueSet","contained":[` + repeat(10_000+1, empty) + `]}`, "more than 10000 definitions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, _ := call(t, &Handler{Library: colourLibrary(t)}, "POST", "/ValueSet/$expand", posted(`{"name":"url","valueUri":"http://x/colours/vs"}`, brings(test.brought)))
			if want := test.want; (w.Code == http.StatusBadRequest) != (want != "") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("got %d %.300s", w.Code, w.Body)
			}
		})
	}
}

// TestRoomForBodies has clients say that their bodies are large: room is made for what comes.
func TestRoomForBodies(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/$expand", nil)
	body := &roomy{Reader: strings.NewReader("{}")}
	r.Body, r.ContentLength = io.NopCloser(body), 16<<20
	if _, err := (&operation{handler: new(Handler)}).readBody(httptest.NewRecorder(), r); err != nil || body.room > 2*maxTrusted {
		t.Errorf("got %v, room for %d bytes", err, body.room)
	}
}

// roomy notes for how much there is room when it is read.
type roomy struct {
	io.Reader
	room int
}

func (r *roomy) Read(b []byte) (int, error) {
	r.room = max(r.room, len(b))
	return r.Reader.Read(b)
}
