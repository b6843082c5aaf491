package standard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestRelatedOperations(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
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
			if strings.Contains(test.path, "$") {
				terminologytest.RequireFeatures(t, test.path)
			}
			w, _ := terminologytest.Call(t, h, "GET", test.path, "")
			if w.Code != test.status {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			fixture.WantContains(t, w.Body.String(), test.want...)
			if x, _ := terminologytest.Call(t, h, "GET", test.path+"&_format=xml", ""); test.status == 200 && terminologytest.HasFeature("xml") && !strings.HasPrefix(x.Body.String(), "<?xml") {
				t.Errorf("as XML: got %.60s", x.Body)
			}
		})
	}
}

// TestConceptSpecifiedOnce checks that a concept must be specified either by code and system or by a Coding (R4
// CodeSystem/$lookup, $subsumes).
func TestConceptSpecifiedOnce(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	coding := func(name, code string) string {
		return `{"name":"` + name + `","valueCoding":{"system":"http://x/colours","code":"` + code + `"}}`
	}
	code := func(name, code string) string { return `{"name":"` + name + `","valueCode":"` + code + `"}` }
	system, other := fixture.URI("system", "http://x/colours"), fixture.URI("system", "http://x/rgb")
	const lookup, subsumes = "/CodeSystem/$lookup", "/CodeSystem/$subsumes"
	tests := []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"Coding", lookup, fixture.ParametersOf(coding("coding", "red")), 200, `"valueString":"Red"`},
		{"Coding with a system beside it", lookup, fixture.ParametersOf(coding("coding", "red"), other), 200, `"valueString":"Red"`},
		{"code and Coding", lookup, fixture.ParametersOf(coding("coding", "red"), code("code", "blue"), system), 400, "must not be combined"},
		{"Codings", subsumes, fixture.ParametersOf(coding("codingB", "pink"), coding("codingA", "red")), 200, `"subsumes"`},
		{"code and Coding of one", subsumes, fixture.ParametersOf(coding("codingA", "red"), code("codeA", "red"), code("codeB", "red"), system), 400, "must not be combined"},
		{"a code and a Coding", subsumes, fixture.ParametersOf(coding("codingA", "pink"), code("codeB", "red"), system), 200, `"subsumed-by"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			terminologytest.RequireFeatures(t, test.path)
			w, _ := terminologytest.Call(t, h, "POST", test.path, test.body)
			if w.Code != test.status {
				t.Errorf("got %d", w.Code)
			}
			fixture.WantContains(t, w.Body.String(), test.want)
		})
	}
}

// FuzzOperations checks that all operations respond to any body with either the expected resource type or an error.
func FuzzOperations(f *testing.F) {
	for _, seed := range []string{
		`{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/is-red"},{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}},{"name":"tx-resource","resource":` + fixture.Colours + `}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://x/colours","code":"x"},{}]}},{"name":"valueSet","resource":{"resourceType":"ValueSet","compose":{"include":[{"system":"http://x/colours","version":"1.x"}]}}}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"validation","resource":{"resourceType":"Parameters"}},{"name":"code","valueCode":"red"},{"name":"system","valueUri":"http://x/colours"},{"name":"property","valueCode":"*"},{"part":[{"part":[]}]}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"thisUrl","valueUri":"http://x/is-red"},{"name":"otherValueSet","resource":{"resourceType":"ValueSet","compose":{"include":[{"system":"http://x/colours","concept":[{"code":"red"}]}]}}}]}`,
		`{"resourceType":"ValueSet","compose":{"include":[{"valueSet":["http://x/listed"]}]}}`, `{`, `[]`,
	} {
		f.Add(seed)
	}
	l := terminologytest.ColourLibrary(f)
	f.Fuzz(func(t *testing.T, body string) {
		h := &api.Handler{Library: l}
		for _, path := range []string{
			"/ValueSet/$expand", "/ValueSet/$validate-code", "/CodeSystem/$validate-code", "/CodeSystem/$lookup",
			"/CodeSystem/$subsumes", "/ConceptMap/$translate", "/ValueSet/$batch-validate-code", "/ValueSet/$related",
		} {
			if !terminologytest.HasFeature(path) {
				continue
			}
			if w, answer := terminologytest.Call(t, h, "POST", path, body); answer["resourceType"] == nil || w.Code >= 500 {
				t.Fatalf("%s: got %d %s", path, w.Code, w.Body)
			}
		}
	})
}

// TestOtherServers checks that a negative result caused by a missing definition is provisional: other servers are called first,
// and the result is used only if they fail. (R4 ValueSet/$validate-code: false means that the code "is not valid".)
func TestOtherServers(t *testing.T) {
	l := terminologytest.Library(t,
		fixture.VersionedSystem("http://x/cs", "1", "complete", "a"), fixture.VersionedSystem("http://x/empty", "1", "not-present", ""),
		fixture.ComposedValueSet("http://x/known", "1", `{"system":"http://x/cs"}`), fixture.ComposedValueSet("http://x/other-version", "1", `{"system":"http://x/cs","version":"9"}`),
		fixture.ComposedValueSet("http://x/imports", "1", `{"valueSet":["http://x/nowhere"]}`), fixture.ComposedValueSet("http://x/lists", "1", `{"system":"http://x/gone","concept":[{"code":"a"}]}`),
		fixture.ConceptMap("plain", `{"code":"1","target":[{"code":"one"}]},{"code":"2","target":[{"equivalence":"unmatched"}]}`, ""), fixture.ConceptMap("lost", "", fixture.OtherMap("nowhere")),
	)
	h := &api.Handler{Library: l}
	withServers := &api.Handler{Library: l, HasOtherServers: true}
	tests := []struct {
		operation, query string
		missing          []outcome.MissingDefinition // nil if the result is final
	}{
		{"CodeSystem/$validate-code", "url=http://x/cs&code=a", nil},
		{"CodeSystem/$validate-code", "url=http://x/cs&code=b", nil},
		{"CodeSystem/$validate-code", "url=http://x/gone&code=a", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"CodeSystem/$validate-code", "url=http://x/gone&code=a&_format=xml", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"CodeSystem/$validate-code", "url=http://x/cs&version=9&code=a", outcome.MissingOf("CodeSystem", "http://x/cs", "9")},
		{"CodeSystem/$validate-code", "url=http://x/empty&code=a", outcome.MissingOf("CodeSystem", "http://x/empty", "")},
		{"ValueSet/$validate-code", "url=http://x/known&system=http://x/cs&code=b", nil},
		{"ValueSet/$validate-code", "url=http://x/known&system=http://x/gone&code=b", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"ValueSet/$validate-code", "url=http://x/other-version&system=http://x/cs&code=a", outcome.MissingOf("CodeSystem", "http://x/cs", "9")},
		{"ValueSet/$validate-code", "url=http://x/imports&system=http://x/cs&code=a", outcome.MissingOf("ValueSet", "http://x/nowhere", "")},
		{"ValueSet/$validate-code", "url=http://x/lists&system=http://x/gone&code=a", outcome.MissingOf("CodeSystem", "http://x/gone", "")},
		{"ValueSet/$validate-code", "url=http://x/lists&system=http://x/gone&code=a&valueset-membership-only=true", nil},
		{"ValueSet/$related", "thisUrl=http://x/known&otherUrl=http://x/known", nil},
		{"ValueSet/$related", "thisUrl=http://x/imports&otherUrl=http://x/known", outcome.MissingOf("ValueSet", "http://x/nowhere", "")},
		{"ConceptMap/$translate", "system=http://x/a&code=1", nil},
		{"ConceptMap/$translate", "system=http://x/gone&code=1", []outcome.MissingDefinition{{ResourceType: "ConceptMap"}}},
		{"ConceptMap/$translate", "url=http://x/plain&system=http://x/a&code=2", nil},
		{"ConceptMap/$translate", "url=http://x/plain&system=http://x/a&code=9", nil},
		{"ConceptMap/$translate", "url=http://x/lost&system=http://x/a&code=9", outcome.MissingOf("ConceptMap", "http://x/nowhere", "")},
	}
	for _, tt := range tests {
		t.Run(tt.operation+"?"+tt.query, func(t *testing.T) {
			terminologytest.RequireFeatures(t, tt.operation)
			if strings.Contains(tt.query, "xml") {
				terminologytest.RequireFeatures(t, "xml")
			}
			answer := func(h *api.Handler) (*httptest.ResponseRecorder, error) {
				w := httptest.NewRecorder()
				return w, terminologytest.ServeError(h, w, httptest.NewRequest("GET", "/"+tt.operation+"?"+tt.query, nil))
			}
			want, err := answer(h)
			if err != nil {
				t.Fatal(err)
			}
			got, err := answer(withServers)
			if e, ok := errors.AsType[*outcome.Error](err); ok {
				if !errors.Is(err, outcome.ErrIncomplete) || !reflect.DeepEqual(e.Missing, tt.missing) || got.Body.Len() > 0 {
					t.Fatalf("got %v, missing %v, wrote %s", err, e.Missing, got.Body)
				}
				err = terminologytest.WriteProvisional(got, e)
			} else if tt.missing != nil {
				t.Errorf("other servers are not called: %s", got.Body)
			}
			if err != nil || got.Code != http.StatusOK || got.Body.String() != want.Body.String() || !reflect.DeepEqual(got.Header(), want.Header()) {
				t.Errorf("got %v, %d %s; alone %s", err, got.Code, got.Body, want.Body)
			}
		})
	}
}

// TestLanguageRefused checks that every operation with a language parameter rejects invalid languages.
func TestLanguageRefused(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	for _, path := range []string{
		"/ValueSet/$expand?url=http://x/is-red", "/CodeSystem/$lookup?system=http://x/colours&code=red",
		"/ValueSet/$validate-code?url=http://x/is-red&system=http://x/colours&code=red",
	} {
		if !terminologytest.HasFeature(path) {
			continue
		}
		if w, _ := terminologytest.Call(t, h, "GET", path+"&displayLanguage=--", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "displayLanguage") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
		if w, _ := terminologytest.Call(t, h, "GET", path+"&displayLanguage=de-CH,*%3Bq=0", ""); w.Code != 200 {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

// TestModifierExtensions checks that a definition with a modifier extension is rejected, because it may change the meaning.
func TestModifierExtensions(t *testing.T) {
	const modifier = `"modifierExtension":[{"url":"http://x/not","valueBoolean":true}]`
	system := func(member, inConcept string) string {
		return `{"resourceType":"CodeSystem","url":"http://x/s","version":"1","status":"active","content":"complete"` + member +
			`,"concept":[{"code":"a"` + inConcept + `}]}`
	}
	valueSet := func(member, compose, include string) string {
		return `{"resourceType":"ValueSet","url":"http://x/v","status":"active"` + member + `,"compose":{"include":[{"system":"http://x/s"` + include + `}]` + compose + `}}`
	}
	for _, test := range []struct{ name, system, valueSet string }{
		{"of the value set", system("", ""), valueSet(","+modifier, "", "")},
		{"implicit rules", system("", ""), valueSet(`,"implicitRules":"http://x/not"`, "", "")},
		{"of the code system, implicit rules", system(`,"implicitRules":"http://x/not"`, ""), valueSet("", "", "")},
		{"of compose", system("", ""), valueSet("", ","+modifier, "")},
		{"of an include", system("", ""), valueSet("", "", ","+modifier)},
		{"of an exclude", system("", ""), valueSet("", `,"exclude":[{"system":"http://x/s",`+modifier+`}]`, "")},
		{"of a listed concept", system("", ""), valueSet("", "", `,"concept":[{"code":"a",`+modifier+`}]`)},
		{"of a filter", system("", ""), valueSet("", "", `,"filter":[{"property":"code","op":"=","value":"a",`+modifier+`}]`)},
		{"of the code system", system(","+modifier, ""), valueSet("", "", "")},
		{"of a concept", system("", ","+modifier), valueSet("", "", "")},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := terminologytest.Library(t, test.system, test.valueSet)
			if e := terminologytest.ExpandError(t, l, "url", "http://x/v"); e.Status != http.StatusUnprocessableEntity || !errors.Is(e, outcome.ErrIncomplete) || !strings.Contains(e.Text, "http://x/not") {
				t.Errorf("expand: got %d %s", e.Status, e.Text)
			}
			const validate = "/ValueSet/$validate-code?url=http://x/v&system=http://x/s&code=a"
			if w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", validate, ""); terminologytest.HasFeature(validate) && w.Code != http.StatusUnprocessableEntity {
				t.Errorf("validate: got %d %s", w.Code, w.Body)
			}
			if !strings.HasPrefix(test.name, "of the code system") {
				return
			}
			for _, path := range []string{"$lookup?system=http://x/s&code=a", "$validate-code?url=http://x/s&code=a"} {
				if !terminologytest.HasFeature("/CodeSystem/" + path) {
					continue
				}
				if w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/CodeSystem/"+path, ""); w.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s: got %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
	if got := terminologytest.Expand(t, terminologytest.Library(t, system("", ""), valueSet("", "", "")), "url", "http://x/v"); len(got.Codes()) != 1 {
		t.Errorf("without: got %q", got.Codes())
	}
}

// TestAsOfDate checks that the date parameter of $lookup and $validate-code selects the definitions as of this date (R4), as
// compose.lockedDate does for the code systems of a value set.
func TestAsOfDate(t *testing.T) {
	version := func(v, date, code string) string {
		return strings.Replace(fixture.SingleConceptCodeSystem("http://x/cs", v, code), `"status"`, `"date":"`+date+`","status"`, 1)
	}
	h := &api.Handler{Library: terminologytest.Library(t, version("1", "2019-05-01", "old"), version("2", "2021-05-01", "new"),
		fixture.ValueSet("http://x/all", `{"include":[{"system":"http://x/cs"}]}`), fixture.ValueSet("http://x/locked", `{"lockedDate":"2020-01-01","include":[{"system":"http://x/cs"}]}`),
		fixture.ValueSet("http://x/listed", `{"include":[{"system":"http://x/elsewhere","concept":[{"code":"a"}]}]}`))}
	const yes, no = `{"name":"result","valueBoolean":true}`, `{"name":"result","valueBoolean":false}`
	for path, want := range map[string]string{
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=new":              yes,
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=new&date=2020":    no,
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=old&date=2020-06": yes,
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=old&date=2018":    no,
		"/ValueSet/$validate-code?url=http://x/locked&system=http://x/cs&code=old":           yes,
		"/ValueSet/$validate-code?url=http://x/locked&system=http://x/cs&code=new":           no,
		"/CodeSystem/$validate-code?url=http://x/cs&code=old&date=2020-06-01":                yes,
		"/CodeSystem/$validate-code?url=http://x/cs&code=old&date=2020-06-01&version=2":      no,
		"/CodeSystem/$validate-code?url=http://x/cs&code=old&date=yesterday":                 "must be a date",
		"/ValueSet/$expand?url=http://x/listed":                                              `"code":"a"`,
		"/ValueSet/$expand?url=http://x/listed&date=2030":                                    "no loaded version of code system http://x/elsewhere existed on 2030",
		"/CodeSystem/$lookup?system=http://x/elsewhere&code=a&date=2030":                     "no loaded version of code system http://x/elsewhere existed on 2030",
		"/CodeSystem/$lookup?system=http://x/nowhere&code=a&date=2030":                       "could not be found",
		"/CodeSystem/$lookup?system=http://x/cs&code=old&date=2020-06-01":                    `"name":"version","valueString":"1"`,
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=2020-06-01":                    "Unknown code",
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=2018":                          "no loaded version of code system http://x/cs existed on 2018",
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=2018&version=2":                `"valueString":"2"`,
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=now":                           "must be a date",
	} {
		if !terminologytest.HasFeature(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %s, want %s", path, w.Body, want)
		}
	}
}

func TestCapabilityStatement(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t), Statement: api.Statement{Version: "1.2.3", Released: fixture.Time, Security: []string{"SMART-on-FHIR"}}}
	w, got := terminologytest.Call(t, h, "GET", "/metadata", "")
	if w.Code != http.StatusOK || got["fhirVersion"] != "4.0.1" || got["kind"] != "instance" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	fixture.WantContains(t, w.Body.String(), `"version":"1.2.3","releaseDate":"2026-01-02"`, `OperationDefinition/ValueSet-expand"`, `"code":"search-type"`,
		`"rest":[{"mode":"server","security":{"service":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/restful-security-service","code":"SMART-on-FHIR"}]}]},`)
	// every operation that the statement lists is served
	for _, resource := range got["rest"].([]any)[0].(map[string]any)["resource"].([]any) {
		claimed := resource.(map[string]any)
		kind := claimed["type"].(string)
		for _, operation := range claimed["operation"].([]any) {
			if w, _ := terminologytest.Call(t, h, "GET", "/"+kind+"/$"+operation.(map[string]any)["name"].(string), ""); w.Code == http.StatusNotFound {
				t.Errorf("%s: %s is claimed and not there", kind, operation)
			}
		}
		if claimed["interaction"] != nil {
			if w, _ := terminologytest.Call(t, h, "GET", "/"+kind, ""); w.Code != http.StatusOK {
				t.Errorf("%s cannot be searched: %d", kind, w.Code)
			}
		}
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/metadata?mode=x", ""); w.Code != http.StatusBadRequest {
		t.Errorf("unknown mode: got %d", w.Code)
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/$versions", ""); !strings.Contains(w.Body.String(), `{"name":"default","valueString":"4.0"}`) {
		t.Errorf("versions: got %s", w.Body)
	}
}

// TestXMLBody checks that a body in XML has the same result as in JSON.
func TestXMLBody(t *testing.T) {
	inline := `{"resourceType":"ValueSet","status":"active","contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[
		{"system":"http://x/colours","concept":[{"code":"blue"}]}]}}],"compose":{"inactive":false,"include":[{"valueSet":["#in"]}]}}`
	parameters := func(list string) string { return `{"resourceType":"Parameters","parameter":[` + list + `]}` }
	for _, test := range []struct{ name, path, body string }{
		{"bare value set", "/ValueSet/$expand", inline},
		{"value set in Parameters", "/ValueSet/$expand", parameters(`{"name":"valueSet","resource":` + inline + `},{"name":"count","valueInteger":1},{"name":"includeDefinition","valueBoolean":true}`)},
		{"brought along", "/ValueSet/$expand", parameters(`{"name":"url","valueUri":"http://x/v"},{"name":"tx-resource","resource":{"resourceType":"CodeSystem","url":"http://x/s",
			"valueSet":"http://x/v","status":"active","content":"complete","property":[{"code":"p","type":"decimal"}],
			"concept":[{"code":"a","property":[{"code":"p","valueDecimal":1.50}],"concept":[{"code":"b"}]}]}},{"name":"property","valueString":"p"}`)},
		{"a coding", "/ValueSet/$validate-code", parameters(`{"name":"url","valueUri":"http://x/is-red"},{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`)},
		{"a concept", "/ValueSet/$validate-code", parameters(`{"name":"url","valueUri":"http://x/is-red"},{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://x/colours","code":"blue"}]}}`)},
		{"lookup", "/CodeSystem/$lookup", parameters(`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`)},
		{"translate", "/ConceptMap/$translate", parameters(`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`)},
		{"a batch", "/ValueSet/$batch-validate-code", parameters(`{"name":"validation","resource":` + parameters(`{"name":"url","valueUri":"http://x/is-red"},{"name":"system","valueUri":"http://x/colours"},{"name":"code","valueCode":"red"}`) + `}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			terminologytest.RequireFeatures(t, test.path)
			if strings.Contains(test.path, "batch") {
				terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
			}
			h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
			want, _ := terminologytest.Call(t, h, "POST", test.path, test.body)
			if want.Code != http.StatusOK {
				t.Fatalf("as JSON: %d %s", want.Code, want.Body)
			}
			for _, kind := range []string{"application/fhir+xml; charset=utf-8", "application/xml", "text/xml"} {
				got, _ := terminologytest.Call(t, h, "POST", test.path, terminologytest.AsXML(t, test.body), "Content-Type", kind)
				if got.Body.String() != want.Body.String() {
					t.Errorf("as %s: got %s\nwant %s", kind, got.Body, want.Body)
				}
			}
		})
	}
}

// TestLimits checks each limit of a handler and a library: the maximum is accepted, and larger values are rejected with an
// error about that limit.
func TestLimits(t *testing.T) {
	filtered := func(regex string) string {
		return fixture.ValueSet("http://x/regex", fmt.Sprintf(`{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"regex","value":%q}]}]}`, regex))
	}
	chain := []string{fixture.ValueSet("http://x/0", `{"include":[{"system":"http://x/colours"}]}`)}
	for i := range 4 {
		chain = append(chain, fixture.ValueSet(fmt.Sprintf("http://x/%d", i+1), fmt.Sprintf(`{"include":[{"valueSet":["http://x/%d"]}]}`, i)))
	}
	inline := func(name string) string { return `{"resourceType":"ValueSet","name":"` + name + `","compose":{}}` }
	largest := inline("a")
	largest += strings.Repeat(" ", 16<<20-len(largest))
	resources := func(n int) string {
		return `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/0"}` +
			strings.Repeat(`,{"name":"tx-resource","resource":{"resourceType":"ValueSet"}}`, n) + `]}`
	}
	for _, test := range []struct {
		name                    string
		handler                 *api.Handler
		options                 definitions.Options
		path, allowed, tooMuch  string // for GET, rest of the path; for POST, body
		status                  int
		code                    string
		text                    string
		method                  string
		allowedSet, tooLargeSet string // definitions to load in addition
	}{
		{name: "entries", handler: &api.Handler{Limits: expansion.Limits{Entries: 3}}, path: "/ValueSet/$expand?url=http://x/0&count=", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3"},
		{name: "entries without a page", handler: &api.Handler{Limits: expansion.Limits{Entries: 3}}, path: "/ValueSet/$expand?url=http://x/0", allowed: "&count=3", tooMuch: "", status: 422, code: "too-costly", text: "offset and count"},
		{name: "filter length", path: "/ValueSet/$expand?url=http://x/0&filter=", allowed: strings.Repeat("a", 1000), tooMuch: strings.Repeat("a", 1001), status: 400, code: "too-long", text: "1000 bytes"},
		{name: "filter words", path: "/ValueSet/$expand?url=http://x/0&filter=", allowed: strings.Repeat("a+", 20), tooMuch: strings.Repeat("a+", 21), status: 400, code: "too-long", text: "20 words"},
		{name: "body", method: "POST", path: "/ValueSet/$expand", allowed: largest, tooMuch: largest + " ", status: 413, code: "too-long", text: "16 MiB"},
		{name: "resources", method: "POST", path: "/ValueSet/$expand", allowed: resources(200), tooMuch: resources(201), status: 413, code: "too-costly", text: "200 tx-resource"},
		{name: "import depth", options: definitions.Options{MaxImportDepth: 3}, path: "/ValueSet/$expand?url=http://x/", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3 deep"},
		{name: "import depth of a validation", options: definitions.Options{MaxImportDepth: 3}, path: "/ValueSet/$validate-code?system=http://x/colours&code=red&url=http://x/", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3 deep"},
		{name: "gathered", options: definitions.Options{MaxVisitedCodes: 30}, path: "/ValueSet/$expand?url=http://x/", allowed: "1", tooMuch: "2", status: 422, code: "too-costly", text: "more than 30 codes"},
		{name: "regex", options: definitions.Options{MaxRegexStates: 10}, path: "/ValueSet/$expand?url=http://x/regex", allowedSet: filtered("(a|r)[a-z]+"), tooLargeSet: filtered("(a{3}){5}"), status: 422, code: "too-costly", text: "more than 10"},
		{name: "regex of a validation", options: definitions.Options{MaxRegexStates: 10}, path: "/ValueSet/$validate-code?url=http://x/regex&system=http://x/colours&code=red", allowedSet: filtered("red"), tooLargeSet: filtered("red|brown|black"), status: 422, code: "too-costly", text: "more than 10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			terminologytest.RequireFeatures(t, test.path)
			ask := func(more, part string) (int, string) {
				h := test.handler
				if h == nil {
					h = &api.Handler{}
				}
				test.options.Definitions = definitionFiles(t, append([]string{fixture.Colours, more}, chain...)...)
				l, err := terminology.Load(t.Context(), test.options)
				if err != nil {
					t.Fatal(err)
				}
				h.Library = l
				if test.method == http.MethodPost {
					w, _ := terminologytest.Call(t, h, test.method, test.path, part)
					return w.Code, w.Body.String()
				}
				w, _ := terminologytest.Call(t, h, http.MethodGet, test.path+part, "")
				return w.Code, w.Body.String()
			}
			if status, body := ask(test.allowedSet, test.allowed); status != http.StatusOK {
				t.Errorf("at the limit: got %d %s", status, body)
			}
			status, body := ask(test.tooLargeSet, test.tooMuch)
			if status != test.status {
				t.Errorf("beyond the limit: got %d %s", status, body)
			}
			fixture.WantContains(t, body, `"code":"`+test.code+`"`, test.text)
		})
	}
}

// definitionFiles writes each nonempty resource to a separate file and returns the paths.
func definitionFiles(t *testing.T, resources ...string) []string {
	folder := t.TempDir()
	for i, resource := range resources {
		if resource != "" {
			fixture.WriteFile(t, filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource))
		}
	}
	return []string{folder}
}

// TestSourceBeforeOtherServers checks that the source of definitions is called once before other servers, and that a batch is
// processed as far as possible.
func TestSourceBeforeOtherServers(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	source := &terminologytest.RecordingSource{}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}, HasOtherServers: true}
	err := terminologytest.ServeError(h, httptest.NewRecorder(), httptest.NewRequest("GET", "/CodeSystem/$validate-code?code=a&url="+url.QueryEscape("http://x/cs"), nil))
	if e := (*outcome.Error)(nil); !errors.As(err, &e) || e.Provisional == nil {
		t.Errorf("got %v", err)
	}
	source.WantRequested(t, "CodeSystem http://x/cs")
	w := httptest.NewRecorder()
	batch := `{"resourceType":"Parameters","parameter":[{"name":"validation","resource":{"resourceType":"Parameters","parameter":[
		{"name":"coding","valueCoding":{"system":"http://x/cs","code":"a"}}]}}]}`
	if err := terminologytest.ServeError(h, w, httptest.NewRequest("POST", "/ValueSet/$batch-validate-code", strings.NewReader(batch))); err != nil || !strings.Contains(w.Body.String(), "x-unknown-system") {
		t.Errorf("batch: got %v, %s", err, w.Body)
	}
}

// validCodes returns the codes in a value set that $validate-code accepts.
func validCodes(t *testing.T, h *api.Handler, url, common string) []string {
	t.Helper()
	var codes, validations []string
	for i := range 28 {
		codes = append(codes, fmt.Sprintf("s%d c%d", i%4, i/4))
		validations = append(validations, `{"name":"validation","resource":`+fixture.ParametersOf(
			fixture.URI("system", fmt.Sprintf("http://x/s%d", i%4)), fmt.Sprintf(`{"name":"code","valueCode":"c%d"}`, i/4))+`}`)
	}
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$batch-validate-code", fixture.ParametersOf(append(validations, fixture.URI("url", url), common)...))
	valid, i := []string{}, 0
	for _, one := range strings.Split(w.Body.String(), `{"name":"validation"`)[1:] {
		if strings.Contains(one, `{"name":"result","valueBoolean":true}`) {
			valid = append(valid, codes[i])
		}
		i++
	}
	if i != len(codes) {
		t.Fatalf("got %s", w.Body)
	}
	return valid
}

// TestValidateAgreesWithExpand checks, with random value sets, that $validate-code accepts exactly the codes in the expansion,
// although it does not expand.
func TestValidateAgreesWithExpand(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	t.Parallel()
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 5))
		versions := 1 + int(seed%2)
		definitions := append(randomSystem(r, "http://x/s0", versions), randomSystem(r, "http://x/s1", versions)...)
		definitions = append(definitions, fixture.VersionedSystem("http://x/s3", "1.0", []string{"not-present", "fragment", "example"}[seed%3], "")) // s2 is never loaded
		for v := range 3 {
			imports := v
			if versions > 1 {
				imports = 0 // if imports select different versions, which version of a code is returned is unspecified
			}
			compose := fmt.Sprintf(`{"inactive":%t,"include":[%s,%s],"exclude":[%s]}`, r.IntN(3) > 0, randomInclude(r, versions, imports),
				randomInclude(r, versions, imports), randomInclude(r, versions, imports))
			definitions = append(definitions, fixture.ValueSet(fmt.Sprintf("http://x/v%d", v), compose))
		}
		h := &api.Handler{Library: terminologytest.Library(t, definitions...)}
		for v := range 3 {
			for _, active := range []string{"false", "true"} {
				url := fmt.Sprintf("http://x/v%d", v)
				listed := []string{}
				for _, c := range terminologytest.ExpandWith(t, h, "url", url, "activeOnly", active, "excludeNested", "true").Expansion.Contains {
					if code := strings.TrimPrefix(c.System, "http://x/") + " " + c.Code; !slices.Contains(listed, code) {
						listed = append(listed, code)
					}
				}
				valid := validCodes(t, h, url, `{"name":"activeOnly","valueBoolean":`+active+`}`)
				slices.Sort(listed)
				slices.Sort(valid)
				if !slices.Equal(listed, valid) {
					t.Errorf("seed %d, value set %d, activeOnly %s: expanded %q, valid %q\n%s", seed, v, active, listed, valid, definitions[len(definitions)-3+v])
				}
			}
		}
	}
}

// randomSystem returns several versions of a code system. Their concepts differ in number, parents, properties and statuses.
func randomSystem(r *rand.Rand, url string, versions int) []string {
	var all []string
	for version := range versions {
		var concepts []string
		for i := range 2 + r.IntN(5) {
			properties := []string{fmt.Sprintf(`{"code":"kind","valueCode":"k%d"}`, r.IntN(3))}
			if r.IntN(4) == 0 {
				properties = append(properties, `{"code":"inactive","valueBoolean":true}`)
			}
			if i > 0 && r.IntN(2) == 0 {
				properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, r.IntN(i)))
			}
			concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ",")))
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"version":"%d.0","status":"active","content":"complete","concept":[%s]}`,
			url, version+1, strings.Join(concepts, ",")))
	}
	return all
}

// randomInclude returns an include or exclude of a code system, in a specific version or the latest one, and of earlier value
// sets if there are any. Enumerated codes may be missing or belong to a missing version.
func randomInclude(r *rand.Rand, versions, valueSets int) string {
	set := map[string]any{}
	if valueSets > 0 && r.IntN(3) == 0 {
		set["valueSet"] = []string{fmt.Sprintf("http://x/v%d", r.IntN(valueSets))}
	}
	if len(set) == 0 || r.IntN(2) == 0 {
		set["system"] = fmt.Sprintf("http://x/s%d", r.IntN(2))
		if versions > 1 && r.IntN(2) == 0 {
			set["version"] = []string{"1.0", "2.0", "*"}[r.IntN(versions+1)]
		}
		ops := []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}
		switch r.IntN(4) {
		case 0:
			set["concept"] = []map[string]string{{"code": fmt.Sprintf("c%d", r.IntN(7))}, {"code": fmt.Sprintf("c%d", r.IntN(7))}}
			switch r.IntN(6) {
			case 0:
				set["system"] = "http://x/s2"
			case 1:
				set["system"] = "http://x/s3"
			case 2:
				set["version"] = "9.0"
			}
		case 1:
			set["filter"] = []map[string]string{{"property": "concept", "op": ops[r.IntN(len(ops))], "value": fmt.Sprintf("c%d", r.IntN(2))}}
		case 2:
			set["filter"] = []map[string]string{{"property": "kind", "op": []string{"in", "not-in"}[r.IntN(2)], "value": "k0,k1"}, {"property": "code", "op": "regex", "value": "c[0-3]"}}
		}
	}
	text, _ := json.Marshal(set)
	return string(text)
}

func TestFetchedForValidation(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	source := &terminologytest.RecordingSource{Resources: []string{
		fixture.ComposedValueSet("http://x/vs", "1", `{"valueSet":["http://x/part"]}`), fixture.ComposedValueSet("http://x/part", "1", `{"system":"http://x/cs"}`), fixture.VersionedSystem("http://x/cs", "1", "complete", "a"),
	}}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
	const query = `/ValueSet/$validate-code?url=http://x/vs&system=http://x/cs&code=`
	for code, want := range map[string]string{"a": `{"name":"result","valueBoolean":true}`, "b": `{"name":"result","valueBoolean":false}`} {
		w := httptest.NewRecorder()
		if err := terminologytest.ServeError(h, w, httptest.NewRequest("GET", query+code, nil)); err != nil || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %v, %s", code, err, w.Body)
		}
	}
	if len(source.Requested) != 3 {
		t.Errorf("requests %q", source.Requested)
	}
	h.FetchedDefinitions = &terminology.FetchedDefinitions{Source: source}
	batch := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/vs"},{"name":"validation","resource":{"resourceType":"Parameters","parameter":[
		{"name":"coding","valueCoding":{"system":"http://x/cs","code":"a"}}]}}]}`
	w := httptest.NewRecorder()
	if err := terminologytest.ServeError(h, w, httptest.NewRequest("POST", "/ValueSet/$batch-validate-code", strings.NewReader(batch))); err != nil || !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":true}`) {
		t.Errorf("batch: got %v, %s", err, w.Body)
	}
	source.Set(nil)
	h.FetchedDefinitions = &terminology.FetchedDefinitions{Source: source}
	w = httptest.NewRecorder()
	if err := terminologytest.ServeError(h, w, httptest.NewRequest("GET", "/CodeSystem/$validate-code?url=http://x/cs&code=a", nil)); err != nil || !strings.Contains(w.Body.String(), "x-unknown-system") {
		t.Errorf("not there: got %v, %s", err, w.Body)
	}
}

func TestFetchedCodeSystems(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code", "/CodeSystem/$lookup")
	source := &terminologytest.RecordingSource{Resources: []string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a")}}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
	for _, name := range []string{"$validate-code", "$lookup"} {
		w := httptest.NewRecorder()
		err := terminologytest.ServeError(h, w, httptest.NewRequest("GET", "/CodeSystem/"+name+"?code=a&url=http://x/cs&system=http://x/cs", nil))
		if err != nil || !strings.Contains(w.Body.String(), "Display a") || strings.Contains(w.Body.String(), `"valueBoolean":false},{"name":"issues"`) {
			t.Errorf("%s: got %v, %s", name, err, w.Body)
		}
	}
	source.WantRequested(t, "CodeSystem http://x/cs")
}
