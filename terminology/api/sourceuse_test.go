package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

const (
	allMeasures   = `{"system":"http://x/measures"}`
	lengths       = `{"system":"http://x/measures","filter":[{"property":"base","op":"=","value":"7cm"}]}`
	unclosed      = " unclosed The code System 'http://x/measures' has a grammar and so has infinite members. This extension is based on http://x/ValueSet/common"
	draft         = " warning-draft=http://x/ValueSet/common|1"
	someMeasures  = `{"system":"http://x/measures","concept":[{"code":"5m","display":"Five"},{"code":"9min"},{"code":"20cm"}]}`
	measuresUsed  = " used-codesystem=http://x/measures|2"
	allOfMeasures = "1m=1 metres 20cm=20 centimetres 100cm=100 centimetres 3s=3 seconds"
)

// told is an expansion in short: its codes with displays, its parameters, and why it is not closed.
func told(x expanded) string {
	var list []string
	for _, c := range x.Expansion.Contains {
		list = append(list, c.Code+"="+c.Display)
	}
	list = append(list, x.parameters()...)
	for _, extension := range x.Expansion.Extension {
		if strings.HasSuffix(extension.URL, "valueset-unclosed-reason") {
			list = append(list, "unclosed "+extension.ValueString)
		}
	}
	return strings.Join(list, " ")
}

func TestExpandSource(t *testing.T) {
	vs := func(name, compose string) string { return valueSetOf("http://x/"+name, compose) }
	l := sourceLibrary(t, vs("all", `{"include":[`+allMeasures+`]}`), vs("lengths", `{"include":[`+lengths+`]}`), vs("some", `{"include":[`+someMeasures+`]}`),
		vs("length-of-some", `{"include":[{"valueSet":["http://x/some"],`+lengths[1:]+`]}`),
		vs("some-without-lengths", `{"include":[`+someMeasures+`],"exclude":[`+lengths+`]}`),
		vs("some-without-imported", `{"include":[`+someMeasures+`],"exclude":[{"valueSet":["http://x/lengths"]}]}`),
		vs("none", `{"include":[`+someMeasures+`],"exclude":[{"valueSet":["http://x/all"]}]}`),
		vs("excluded-first", `{"include":[{"valueSet":["http://x/some-without-imported"]},{"valueSet":["http://x/lengths"]}]}`),
		vs("both", `{"include":[`+someMeasures+`,`+lengths+`,{"valueSet":["http://x/lengths"]}],"exclude":[{"valueSet":["http://x/lengths"]},{"system":"http://x/shapes"}]}`),
		vs("mixed", `{"include":[`+someMeasures+`,{"system":"http://x/shapes","filter":[{"property":"sides","op":"=","value":"4"}]},{"system":"http://x/else","concept":[{"code":"e"}]}]}`),
		vs("imported", `{"include":[{"valueSet":["http://x/all"]}]}`))
	tests := []struct{ name, url, filter, want string }{
		{"all", "all", "", allOfMeasures + measuresUsed + draft + unclosed},
		{"implied", "measures?fhir_vs", "", allOfMeasures + measuresUsed + draft + unclosed},
		{"imported", "imported", "", allOfMeasures + measuresUsed + draft + " used-valueset=http://x/all" + unclosed},
		{"filtered", "lengths", "", "1m=1 metres 20cm=20 centimetres 100cm=100 centimetres" + measuresUsed + unclosed},
		{"bounded by a value set", "length-of-some", "", "5m=5 metres 20cm=20 centimetres" + measuresUsed + " used-valueset=http://x/some"},
		{"excluded", "some-without-lengths", "", "9min=9 minutes" + measuresUsed},
		{"excluded value set", "some-without-imported", "", "9min=9 minutes" + measuresUsed + " used-valueset=http://x/lengths"},
		{"all excluded", "none", "", "used-codesystem=http://x/measures|2 used-valueset=http://x/all"},
		{"excluded before it is included", "excluded-first", "", "9min=9 minutes 1m=1 metres 20cm=20 centimetres 100cm=100 centimetres" + measuresUsed +
			" used-valueset=http://x/some-without-imported used-valueset=http://x/lengths" + unclosed},
		{"included and excluded", "both", "", "9min=9 minutes used-codesystem=http://x/measures|2 used-codesystem=http://x/shapes|1 used-valueset=http://x/lengths" + unclosed},
		{"mixed", "mixed", "", "5m=Five 9min=9 minutes 20cm=20 centimetres square=Square e= used-codesystem=http://x/measures|2 used-codesystem=http://x/shapes|1 warning-unknown-system=http://x/else"},
		{"searched", "all", "cent", "20cm=20 centimetres 100cm=100 centimetres filter=cent" + measuresUsed + draft + unclosed},
		{"searched by a display of the value set that it is based on", "all", "yard", "filter=yard" + measuresUsed + draft + unclosed},
		{"mixed, searched", "mixed", "squ", "square=Square filter=squ used-codesystem=http://x/measures|2 used-codesystem=http://x/shapes|1 warning-unknown-system=http://x/else"},
		{"table", "ValueSet/shapes", "tri", "triangle=Triangle filter=tri used-codesystem=http://x/shapes|1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pairs := []string{"url", "http://x/" + test.url}
			if test.filter != "" {
				pairs = append(pairs, "filter", test.filter)
			}
			got := told(expand(t, l, pairs...))
			if got = strings.TrimSuffix(got, " offset=0"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	if x, page := expand(t, l, "url", "http://x/all"), expand(t, l, "url", "http://x/all", "count", "2"); x.Expansion.Total != nil || page.Expansion.Total == nil || *page.Expansion.Total != 4 {
		t.Errorf("got %v in all and %v on a page", x.Expansion.Total, page.Expansion.Total)
	}
	w, _ := call(t, &Handler{Library: l}, "GET", "/ValueSet/$expand?url=http://x/all&includeDefinition=true", "")
	wantText(t, w.Body.String(), `{"name":"copyright","valueString":"© of measures"}`)
	for _, compose := range []string{`{"include":[{"system":"http://x/closed"}]}`, `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"=","value":"7"}]}]}`} {
		w, answer := call(t, &Handler{Library: l}, "POST", "/ValueSet/$expand", posted(`{"name":"valueSet","resource":`+valueSetOf("http://x/new", compose)+`}`))
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "too-costly") && !strings.Contains(w.Body.String(), "no unit at column 2") {
			t.Errorf("got %d %v", w.Code, answer)
		}
	}
}

// short is an answer of Parameters in short: name=value.
func short(answer map[string]any) string {
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

// TestAskSource asks the other operations about a grammar and a table, by GET and POST, each with what the answer must have.
func TestAskSource(t *testing.T) {
	l := sourceLibrary(t, valueSetOf("http://x/durations", `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"in","value":"1min,2s"}]},{"system":"http://x/shapes"}]}`))
	target := valueSetOf("http://x/target", `{"include":[{"system":"http://x/measures","concept":[{"code":"2m"},{"code":"4s"}]}]}`)
	h := &Handler{Library: l}
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
		{"POST", "/ConceptMap/$translate", posted(`{"name":"coding","valueCoding":{"system":"http://x/measures","code":"1m"}}`, `{"name":"target","valueUri":"http://x/target"}`, brings(target)),
			`result=true|"code":"2m"|"code":"0.5"`},
		{"POST", "/ConceptMap/$translate", posted(`{"name":"coding","valueCoding":{"system":"http://x/measures","code":"1m"}}`, `{"name":"target","valueUri":"http://x/target"}`, `{"name":"reverse","valueBoolean":true}`, brings(target)),
			`"code":"2m"|"code":"2"`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m&targetsystem=http://x/shapes", "", `result=false`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m", "", `result=false`},
		{"GET", "/ConceptMap/$translate?system=http://x/shapes&code=square&targetsystem=http://x/shapes", "", `result=false`},
	} {
		w, answer := call(t, h, test.method, test.path, test.body)
		got := short(answer)
		for part := range strings.SplitSeq(test.want, "|") {
			if !strings.Contains(got, part) && !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), part) {
				t.Errorf("%s %s%s: %d\n got %s\nwant %s", test.method, test.path, test.body, w.Code, got, part)
			}
		}
	}
}

// Why a filter does not hold is told in the message alone: other servers have no issue of it.
func TestMismatchOfSource(t *testing.T) {
	h := &Handler{Library: sourceLibrary(t, valueSetOf("http://x/lengths", `{"include":[`+lengths+`]}`))}
	w, _ := call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/lengths&system=http://x/measures&code=7s", "")
	if !strings.Contains(w.Body.String(), "Code 7s is not = 7cm; ") || strings.Count(w.Body.String(), `"details"`) != 1 {
		t.Errorf("got %s", w.Body)
	}
}

// A code that is none is refused with the reason, beside the words that other servers have.
func TestRefusal(t *testing.T) {
	h := &Handler{Library: sourceLibrary(t)}
	for _, path := range []string{"/CodeSystem/$validate-code?url=http://x/measures&code=7x", "/CodeSystem/$lookup?system=http://x/measures&code=7x"} {
		w, _ := call(t, h, "GET", path, "")
		for _, part := range []string{`"text":"Unknown code '7x' in the CodeSystem 'http://x/measures' version '2'"`, `"diagnostics":"Unknown code '7x' in the CodeSystem 'http://x/measures' version '2': no unit at column 2"`} {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: got %s, want %s", path, w.Body, part)
			}
		}
	}
}

// Sources can be read as CodeSystems, and what their licences want is said.
func TestPublishedSources(t *testing.T) {
	h := &Handler{Library: sourceLibrary(t)}
	for path, want := range map[string]string{
		"/CodeSystem?url=http://x/measures": `"title":"All measures"|"copyright":"© of measures"|"content":"not-present"|"version":"2"`,
		"/CodeSystem?title=all%20sha":       `"url":"http://x/shapes"|"content":"complete"|"property":[|"code":"square"`,
		"/CodeSystem/shapes":                `"url":"http://x/shapes"|"hierarchyMeaning":"is-a"|"code":"square"`,
	} {
		w, _ := call(t, h, "GET", path, "")
		wantText(t, w.Body.String(), strings.Split(want, "|")...)
	}
	capabilities := string(h.Library.Capabilities().AppendJSON(nil))
	wantText(t, capabilities, `"copyright":"Measures: © of measures\n\nShapes: © of shapes"`, `{"uri":"http://x/measures","version":[{"code":"2"`)
}

// A table that the program brings along is not read by what asks for none of its concepts.
func TestSourceStaysUnread(t *testing.T) {
	l, err := terminology.Load(t.Context(), definitions.Options{Sources: sources(t, []byte("not readable"))})
	if err != nil {
		t.Fatal(err)
	}
	h := &Handler{Library: l}
	l.Capabilities().AppendJSON(nil)
	for _, path := range []string{"/CodeSystem?_summary=true", "/CodeSystem?title=all&_elements=url", "/CodeSystem/$lookup?system=http://x/measures&code=7m"} {
		if w, _ := call(t, h, "GET", path, ""); w.Code != http.StatusOK {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	if _, err := l.With([]byte(valueSetOf("http://x/vs", `{"include":[{"system":"http://x/shapes"}]}`))); err != nil {
		t.Error(err)
	}
}
