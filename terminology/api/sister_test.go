package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

func TestSisterOperations(t *testing.T) {
	h := &Handler{Library: colourLibrary(t)}
	tests := []struct {
		name, path string
		status     int
		want       []string
	}{
		{"lookup", "/CodeSystem/$lookup?system=http://x/colours&code=red&property=*&displayLanguage=de", 200, []string{
			`"valueString":"Colours"`, `"valueString":"Rot"`, `"valueString":"Rood"`, `"valueCanonical":"http://x/nl|1"`,
			`{"name":"code","valueCode":"parent"},{"name":"value","valueCode":"any"}`, `"valueInteger":0`, `"valueCoding":{"system":"http://x/colours","code":"pink"}`,
		}},
		{"lookup of nothing", "/CodeSystem/$lookup?system=http://x/colours", 400, []string{"code"}},
		{"lookup of an unknown code", "/CodeSystem/$lookup?system=http://x/colours&code=grey", 404, []string{"grey"}},
		{"lookup in an unknown system", "/CodeSystem/$lookup?system=http://x/none&code=a", 404, []string{"http://x/none"}},
		{"subsumes", "/CodeSystem/$subsumes?system=http://x/colours&codeA=any&codeB=pink", 200, []string{`"subsumes"`}},
		{"subsumed", "/CodeSystem/$subsumes?system=http://x/colours&codeA=pink&codeB=red", 200, []string{`"subsumed-by"`}},
		{"equivalent", "/CodeSystem/$subsumes?system=http://x/colours&codeA=red&codeB=red", 200, []string{`"equivalent"`}},
		{"not subsumed", "/CodeSystem/$subsumes?system=http://x/colours&codeA=red&codeB=blue", 200, []string{`"not-subsumed"`}},
		{"subsumes in any order", "/CodeSystem/$subsumes?codeB=pink&codeA=any&system=http://x/colours", 200, []string{`"subsumes"`}},
		{"translate", "/ConceptMap/$translate?system=http://x/colours&code=red&targetsystem=http://x/rgb", 200, []string{`"valueBoolean":true`, `"code":"f00","display":"#f00"`, `"equivalent"`}},
		{"translate back", "/ConceptMap/$translate?targetSystem=http://x/rgb&targetCode=f00&sourceSystem=http://x/colours", 200, []string{`"code":"red"`}},
		{"translate what does not match", "/ConceptMap/$translate?url=http://x/map&system=http://x/colours&code=blue", 200, []string{`"valueBoolean":false`}},
		{"translate with an unknown map", "/ConceptMap/$translate?url=http://x/none&system=http://x/colours&code=blue", 404, []string{"http://x/none"}},
		{"valid", "/ValueSet/$validate-code?url=http://x/is-red&system=http://x/colours&code=red&display=rot", 200, []string{`"valueBoolean":true`, `"valueString":"Red"`}},
		{"not in the value set", "/ValueSet/$validate-code?url=http://x/is-red&system=http://x/colours&code=blue", 200, []string{`"valueBoolean":false`, "not found in the value set 'http://x/is-red'", "not-in-vs"}},
		{"inferred system", "/ValueSet/$validate-code?url=http://x/is-red&code=red&inferSystem=true", 200, []string{`"valueUri":"http://x/colours"`}},
		{"wrong display", "/ValueSet/$validate-code?url=http://x/listed&system=http://x/colours&code=blue&display=Green", 200, []string{`"valueBoolean":false`, "Wrong Display Name 'Green'"}},
		{"wrong display, leniently", "/ValueSet/$validate-code?url=http://x/listed&system=http://x/colours&code=blue&display=Green&lenient-display-validation=true", 200, []string{`"valueBoolean":true`, "Wrong Display Name 'Green'"}},
		{"inactive", "/ValueSet/$validate-code?url=http://x/is-red&system=http://x/colours&code=pink", 200, []string{`"valueBoolean":true`, `"inactive"`, "retired and inactive"}},
		{"abstract", "/ValueSet/$validate-code?url=http://x/colours/vs&system=http://x/colours&code=any&abstract=false", 200, []string{`"valueBoolean":false`, "abstract"}},
		{"abstract, where that is allowed", "/ValueSet/$validate-code?url=http://x/colours/vs&system=http://x/colours&code=any&abstract=true", 200, []string{`"name":"result","valueBoolean":true`}},
		{"in a version that is not here", "/ValueSet/$validate-code?url=http://x/is-red&system=http://x/colours&code=red&force-system-version=http://x/colours|9", 200, []string{
			`"name":"result","valueBoolean":false`, "A definition for CodeSystem 'http://x/colours' version '9' could not be found",
		}},
		{"unknown value set", "/ValueSet/$validate-code?url=http://x/none&system=http://x/colours&code=red", 404, []string{"http://x/none"}},
		{"no code", "/ValueSet/$validate-code?url=http://x/is-red", 400, []string{"codeableConcept"}},
		{"in a code system", "/CodeSystem/$validate-code?url=http://x/colours&code=red&display=Rood", 200, []string{`"valueBoolean":true`}},
		{"not in a code system", "/CodeSystem/$validate-code?url=http://x/colours&code=grey", 200, []string{`"valueBoolean":false`, "Unknown code 'grey'"}},
		{"unknown code system", "/CodeSystem/$validate-code?url=http://x/none&code=grey", 200, []string{`"valueBoolean":false`, "x-unknown-system"}},
		{"lookup in an instance", "/CodeSystem/colours/$lookup?code=red", 200, []string{`"valueString":"Red"`}},
		{"lookup in an instance that is not here", "/CodeSystem/none/$lookup?code=red", 404, []string{"none"}},
		{"lookup in an instance of another system", "/CodeSystem/colours/$lookup?code=red&system=http://x/rgb", 400, []string{"http://x/rgb"}},
		{"lookup in an instance of another version", "/CodeSystem/colours/$lookup?code=red&version=2", 400, []string{"http://x/colours|2"}},
		{"subsumes in an instance", "/CodeSystem/colours/$subsumes?codeA=any&codeB=pink", 200, []string{`"subsumes"`}},
		{"in the code system of an instance", "/CodeSystem/colours/$validate-code?code=red", 200, []string{`"valueBoolean":true`}},
		{"not in the code system of an instance", "/CodeSystem/colours/$validate-code?code=grey", 200, []string{`"valueBoolean":false`}},
		{"in a code system that is not here", "/CodeSystem/none/$validate-code?code=red", 404, []string{"none"}},
		{"translate with an instance", "/ConceptMap/map/$translate?system=http://x/colours&code=red", 200, []string{`"code":"f00"`}},
		{"translate with an instance that is not here", "/ConceptMap/none/$translate?system=http://x/colours&code=red", 404, []string{"none"}},
		{"capabilities", "/metadata?mode=terminology", 200, []string{`"uri":"http://x/colours"`, `"textFilter"`, `"name":"tx-resource"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := call(t, h, "GET", test.path, "")
			if w.Code != test.status {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			wantText(t, w.Body.String(), test.want...)
			if x, _ := call(t, h, "GET", test.path+"&_format=xml", ""); test.status == 200 && !strings.HasPrefix(x.Body.String(), "<?xml") {
				t.Errorf("as XML: got %.60s", x.Body)
			}
		})
	}
}

// Each concept is given once: by code and system, or by a Coding (R4 CodeSystem/$lookup, $subsumes).
func TestConceptGivenOnce(t *testing.T) {
	h := &Handler{Library: colourLibrary(t)}
	coding := func(name, code string) string {
		return `{"name":"` + name + `","valueCoding":{"system":"http://x/colours","code":"` + code + `"}}`
	}
	code := func(name, code string) string { return `{"name":"` + name + `","valueCode":"` + code + `"}` }
	system, other := uri("system", "http://x/colours"), uri("system", "http://x/rgb")
	const lookup, subsumes = "/CodeSystem/$lookup", "/CodeSystem/$subsumes"
	tests := []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"Coding", lookup, parametersOf(coding("coding", "red")), 200, `"valueString":"Red"`},
		{"Coding with a system beside it", lookup, parametersOf(coding("coding", "red"), other), 200, `"valueString":"Red"`},
		{"code and Coding", lookup, parametersOf(coding("coding", "red"), code("code", "blue"), system), 400, "only one"},
		{"Codings", subsumes, parametersOf(coding("codingB", "pink"), coding("codingA", "red")), 200, `"subsumes"`},
		{"code and Coding of one", subsumes, parametersOf(coding("codingA", "red"), code("codeA", "red"), code("codeB", "red"), system), 400, "only one"},
		{"a code and a Coding", subsumes, parametersOf(coding("codingA", "pink"), code("codeB", "red"), system), 200, `"subsumed-by"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := call(t, h, "POST", test.path, test.body)
			if w.Code != test.status {
				t.Errorf("got %d", w.Code)
			}
			wantText(t, w.Body.String(), test.want)
		})
	}
}

// A concept is not what the one above it is where the code system says so (R4 CodeSystem.hierarchyMeaning).
func TestHierarchyMeaning(t *testing.T) {
	for meaning, want := range map[string]string{
		"": "subsumes", "is-a": "subsumes", "classified-with": "subsumes", "grouped-by": "not-subsumed", "part-of": "not-subsumed",
	} {
		h := &Handler{Library: libraryOf(t, strings.Replace(colours, `"content"`, `"hierarchyMeaning":"`+meaning+`","content"`, 1))}
		w, _ := call(t, h, "GET", "/CodeSystem/$subsumes?system=http://x/colours&codeA=any&codeB=pink", "")
		wantText(t, w.Body.String(), `"valueCode":"`+want+`"`)
		w, _ = call(t, h, "GET", "/metadata?mode=terminology", "")
		if got := strings.Contains(w.Body.String(), `"subsumption":true`); got != (want == "subsumes") {
			t.Errorf("%s: TerminologyCapabilities tell of subsumption: %t", meaning, got)
		}
	}
}

func TestBatchValidate(t *testing.T) {
	h := &Handler{Library: colourLibrary(t)}
	one := func(code string) string {
		return `{"name":"validation","resource":{"resourceType":"Parameters","parameter":[{"name":"coding","valueCoding":{"system":"http://x/colours","code":"` + code + `"}}]}}`
	}
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/is-red"},` + one("red") + "," + one("blue") +
		`,{"name":"validation","resource":{"resourceType":"Parameters"}}]}`
	w, _ := call(t, h, "POST", "/ValueSet/$batch-validate-code", body)
	if got := strings.Count(w.Body.String(), `"name":"validation"`); got != 3 || strings.Count(w.Body.String(), `"name":"result"`) != 2 {
		t.Errorf("got %s", w.Body)
	}
	wantText(t, w.Body.String(), `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid"`)
}

func TestBodyIsPutBack(t *testing.T) {
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/none"}]}`
	r := httptest.NewRequest("POST", "/fhir/R4/ValueSet/$expand", strings.NewReader(body))
	err := (&Handler{Library: coreLibrary(t)}).Expand(httptest.NewRecorder(), r)
	if again, _ := io.ReadAll(r.Body); !errors.Is(err, outcome.ErrUnknown) || string(again) != body {
		t.Errorf("got %v, %s", err, again)
	}
}

func TestBodyLimits(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
	resource := `{"name":"tx-resource","resource":` + codeSystemWith("http://x/a", "1", "a") + `}`
	tests := []struct {
		name, body string
		status     int
	}{
		{"too large", `{"resourceType":"Parameters","x":"` + strings.Repeat("x", maxBody) + `"}`, http.StatusRequestEntityTooLarge},
		{"too many resources", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/a-all"},` + resource + strings.Repeat(","+resource, maxResources) + `]}`, http.StatusRequestEntityTooLarge},
		{"not JSON", `nothing`, 400},
		{"cut off", `{"resourceType":"Parameters","parameter":[`, 400},
		{"two resources", `{"resourceType":"Parameters"}{}`, 400},
		{"another resource", `{"resourceType":"Patient"}`, 400},
		{"broken tx-resource", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"x"},{"name":"tx-resource","resource":{"resourceType":"CodeSystem","concept":3}}]}`, 400},
		{"empty", ``, 400},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, answer := call(t, h, "POST", "/ValueSet/$expand", test.body)
			if w.Code != test.status || answer["resourceType"] != "OperationOutcome" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

// FuzzOperations checks that any body is answered by all operations, with what was asked for or a refusal.
func FuzzOperations(f *testing.F) {
	for _, seed := range []string{
		`{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/is-red"},{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}},{"name":"tx-resource","resource":` + colours + `}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://x/colours","code":"x"},{}]}},{"name":"valueSet","resource":{"resourceType":"ValueSet","compose":{"include":[{"system":"http://x/colours","version":"1.x"}]}}}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"validation","resource":{"resourceType":"Parameters"}},{"name":"code","valueCode":"red"},{"name":"system","valueUri":"http://x/colours"},{"name":"property","valueCode":"*"},{"part":[{"part":[]}]}]}`,
		`{"resourceType":"ValueSet","compose":{"include":[{"valueSet":["http://x/listed"]}]}}`, `{`, `[]`,
	} {
		f.Add(seed)
	}
	l := colourLibrary(f)
	f.Fuzz(func(t *testing.T, body string) {
		h := &Handler{Library: l}
		for _, path := range []string{
			"/ValueSet/$expand", "/ValueSet/$validate-code", "/CodeSystem/$validate-code", "/CodeSystem/$lookup",
			"/CodeSystem/$subsumes", "/ConceptMap/$translate", "/ValueSet/$batch-validate-code",
		} {
			if w, answer := call(t, h, "POST", path, body); answer["resourceType"] == nil || w.Code >= 500 {
				t.Fatalf("%s: got %d %s", path, w.Code, w.Body)
			}
		}
	})
}
