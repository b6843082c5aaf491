package standard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestSources checks that the members of each source, which are read during startup, declare all properties in its table.
func TestSources(t *testing.T) {
	systems := &terminologytest.Core(t).Definitions().Systems
	for _, s := range codesystem.Sources() {
		cs := systems.CodeSystems[systems.CodeSystem(s.URL, s.Version)]
		var members string
		for _, m := range cs.OtherMembers {
			members += string(m.Value)
		}
		if list := cs.Concepts.List; list != nil && strings.Contains(string(list.AppendConcepts(nil)), ` "`) {
			t.Errorf("%s: a text ends with a space", s.URL)
		}
		for _, p := range cs.Concepts.Filterable.Properties() {
			if cs.Concepts.List != nil && !strings.Contains(members, `"code":"`+p.Code+`"`) {
				t.Errorf("%s: Members does not declare the property %s", s.URL, p.Code)
			}
		}
	}
}

// TestCoreValueSetsExpand checks that the code systems of the standard build make twelve more R4 value sets complete, one of
// which includes a grammar.
func TestCoreValueSetsExpand(t *testing.T) {
	if n := len(codesystem.Sources()); n < 13 {
		t.Skipf("this build has %d code systems, and not all of the standard build", n)
	}
	l, expanded := terminologytest.Core(t), 0
	x := compose.Expander{Definitions: l.Definitions(), Cache: l.CodeLists(), Rules: new(compose.Rules)}
	for _, vs := range l.Definitions().ValueSets.List {
		if _, err := x.Codes(vs); err == nil {
			expanded++
		}
	}
	if expanded != 1234 {
		t.Errorf("%d value sets expand, want 1234", expanded)
	}
}

// bare is a code system with a single concept. It implements no optional interface except List.
type bare struct{}

func (bare) Len() int { return 1 }

func (bare) AppendConcepts(dst []byte) []byte { return dst }

func (bare) Code(codesystem.Concept) []byte { return []byte("one") }

func (bare) Language() string { return "" }

func (bare) Locate(code []byte) (codesystem.Concept, bool) {
	return codesystem.ConceptAt(0), string(code) == "one"
}

func (b bare) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return b.Code(c), []byte("First"), 0
}

func (bare) AppendTexts(dst []codesystem.Text, _ codesystem.Concept) []codesystem.Text {
	return append(dst, codesystem.Text{Value: []byte("First"), IsDisplay: true})
}

func (bare) AppendValues(dst []codesystem.Value, _ codesystem.Concept) []codesystem.Value { return dst }

// TestBareCodeSystem checks each operation with a code system that lacks optional interfaces.
func TestBareCodeSystem(t *testing.T) {
	l := terminologytest.Library(t, fixture.ValueSet("http://x/is-a", `{"include":[{"system":"http://x/bare","filter":[{"property":"concept","op":"is-a","value":"one"}]}]}`))
	l.Definitions().Systems.AddCodeSystem(&definitions.CodeSystem{Definition: definitions.Definition{URL: "http://x/bare"}, Concepts: codesystem.DetectInterfaces(bare{}), Content: definitions.ContentComplete})
	for _, url := range []string{"http://x/bare?fhir_vs", "http://x/is-a"} {
		for filter, want := range map[string]string{"": "one=First", "fi": "one=First", "second": ""} {
			x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: compose.ValueSetRef{URL: url}, Page: expansion.Page{Filter: filter}})
			if err != nil {
				t.Fatal(err)
			}
			if got := terminologytest.FormatCodes(x.Codes()); got != want {
				t.Errorf("%s, %q: got %s, want %s", url, filter, got, want)
			}
		}
	}
	h := &api.Handler{Library: l}
	for path, want := range map[string]string{
		"/ValueSet/$validate-code?url=http://x/bare?fhir_vs&system=http://x/bare&code=one": `{"name":"result","valueBoolean":true}`,
		"/ValueSet/$validate-code?url=http://x/is-a&system=http://x/bare&code=one":         `{"name":"result","valueBoolean":true}`,
		"/CodeSystem/$lookup?system=http://x/bare&code=one&property=*":                     `"valueString":"First"`,
		"/CodeSystem/$subsumes?system=http://x/bare&codeA=one&codeB=one":                   `"valueCode":"equivalent"`,
	} {
		t.Run(path, func(t *testing.T) {
			terminologytest.RequireFeatures(t, path)
			w, _ := terminologytest.Call(t, h, "GET", path, "")
			fixture.WantContains(t, w.Body.String(), want)
		})
	}
}

// TestSourceOperations checks the operations other than $expand with a grammar and a table, by GET and POST.
func TestSourceOperations(t *testing.T) {
	l := terminologytest.SourceLibrary(t, fixture.ValueSet("http://x/durations", `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"in","value":"1min,2s"}]},{"system":"http://x/shapes"}]}`))
	target := fixture.ValueSet("http://x/target", `{"include":[{"system":"http://x/measures","concept":[{"code":"2m"},{"code":"4s"}]}]}`)
	h := &api.Handler{Library: l}
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&system=http://x/measures&code=7min", "", `result=true|display="7 minutes"|version="2"`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&system=http://x/measures&code=7m", "", `result=false|message="Code 7m is not in 1min,2s; The provided code 'http://x/measures#7m' was not found`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&code=7min&inferSystem=true", "", `result=true|system="http://x/measures"`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&code=circle&inferSystem=true", "", `result=true|system="http://x/shapes"`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&code=7x&inferSystem=true", "", `result=false|value set expansion has no matches`},
		{"GET", "/CodeSystem/$validate-code?url=http://x/measures&code=7x", "", `message="Unknown code '7x' in the CodeSystem 'http://x/measures' version '2'"`},
		{"GET", "/CodeSystem/$lookup?system=http://x/measures&code=7m&property=*", "", `version="2"|"valueCode":"base"|"valueString":"© of measures"`},
		{"GET", "/CodeSystem/$lookup?system=http://x/shapes&code=triangle&property=copyright", "", `"Dreieck"|"valueString":"© of shapes"`},
		{"GET", "/CodeSystem/$subsumes?system=http://x/shapes&codeA=polygon&codeB=square", "", `outcome="subsumes"`},
		{"GET", "/CodeSystem/$subsumes?system=http://x/measures&codeA=1m&codeB=1m", "", `outcome="equivalent"`},
		{"GET", "/CodeSystem/$subsumes?system=http://x/measures&codeA=1m&codeB=100cm", "", `outcome="not-subsumed"`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m&targetsystem=http://x/measures", "",
			`result=true|{"name":"equivalence","valueCode":"equivalent"},{"name":"concept","valueCoding":{"code":"1m"|"code":"100cm"|"relatedto"},{"name":"concept","valueCoding":{"code":"20cm"|#conversion-factor"},{"name":"concept","valueCoding":{"code":"5"}}`},
		{"POST", "/ConceptMap/$translate", fixture.ParametersOf(`{"name":"coding","valueCoding":{"system":"http://x/measures","code":"1m"}}`, `{"name":"target","valueUri":"http://x/target"}`, fixture.TxResource(target)),
			`result=true|"code":"2m"|"code":"0.5"`},
		{"POST", "/ConceptMap/$translate", fixture.ParametersOf(`{"name":"coding","valueCoding":{"system":"http://x/measures","code":"1m"}}`, `{"name":"target","valueUri":"http://x/target"}`, `{"name":"reverse","valueBoolean":true}`, fixture.TxResource(target)),
			`"code":"2m"|"code":"2"`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m&targetsystem=http://x/shapes", "", `result=false`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m", "", `result=false`},
		{"GET", "/ConceptMap/$translate?system=http://x/shapes&code=square&targetsystem=http://x/shapes", "", `result=false`},
	} {
		if !terminologytest.HasFeature(test.path) {
			continue
		}
		w, answer := terminologytest.Call(t, h, test.method, test.path, test.body)
		got := formatParameters(answer)
		for part := range strings.SplitSeq(test.want, "|") {
			if !strings.Contains(got, part) && !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), part) {
				t.Errorf("%s %s%s: %d\n got %s\nwant %s", test.method, test.path, test.body, w.Code, got, part)
			}
		}
	}
}

// formatParameters formats a Parameters response as a list of name=value.
func formatParameters(answer map[string]any) string {
	var list []string
	parameters, _ := answer["parameter"].([]any)
	for _, p := range parameters {
		m := p.(map[string]any)
		for name, value := range m {
			if strings.HasPrefix(name, "value") || name == "part" {
				text, _ := json.Marshal(value)
				list = append(list, fmt.Sprint(m["name"], "=", string(text)))
			}
		}
	}
	return strings.Join(list, " ")
}

// TestRefusal checks that $validate-code reports why a code is invalid in addition to the usual message.
func TestRefusal(t *testing.T) {
	h := &api.Handler{Library: terminologytest.SourceLibrary(t)}
	for _, path := range []string{"/CodeSystem/$validate-code?url=http://x/measures&code=7x", "/CodeSystem/$lookup?system=http://x/measures&code=7x"} {
		if !terminologytest.HasFeature(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		for _, part := range []string{`"text":"Unknown code '7x' in the CodeSystem 'http://x/measures' version '2'"`, `"diagnostics":"Unknown code '7x' in the CodeSystem 'http://x/measures' version '2': no unit at column 2"`} {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: got %s, want %s", path, w.Body, part)
			}
		}
	}
}

// TestSourceStaysUnread checks that an embedded table is not read by requests that do not need its concepts.
func TestSourceStaysUnread(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup")
	l, err := terminology.Load(t.Context(), definitions.Options{Sources: terminologytest.Sources(t, []byte("not readable"))})
	if err != nil {
		t.Fatal(err)
	}
	h := &api.Handler{Library: l}
	l.Capabilities().AppendJSON(nil)
	for _, path := range []string{"/CodeSystem?_summary=true", "/CodeSystem?title=all&_elements=url", "/CodeSystem/$lookup?system=http://x/measures&code=7m"} {
		if w, _ := terminologytest.Call(t, h, "GET", path, ""); w.Code != http.StatusOK {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	if _, err := l.WithResources([]byte(fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/shapes"}]}`))); err != nil {
		t.Error(err)
	}
}
