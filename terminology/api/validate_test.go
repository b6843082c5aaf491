package api

import (
	"strings"
	"testing"
)

// parametersOf writes a Parameters resource with the given parameters, which are JSON.
func parametersOf(parameters ...string) string {
	return `{"resourceType":"Parameters","parameter":[` + strings.Join(parameters, ",") + `]}`
}

// uri writes a parameter that is a uri.
func uri(name, value string) string { return `{"name":"` + name + `","valueUri":"` + value + `"}` }

// One, and only one, of code, coding and codeableConcept says what is validated, and a code needs a system, or what
// it can be inferred from (R4 ValueSet/$validate-code and CodeSystem/$validate-code). A Coding that lacks something
// is no fault of the request: the answer says that it is not valid, with a warning (HL7 terminology ecosystem IG).
func TestWhatIsValidated(t *testing.T) {
	h := &Handler{Library: colourLibrary(t)}
	const valueSet, system = "/ValueSet/$validate-code", "/CodeSystem/$validate-code"
	url, colour := uri("url", "http://x/is-red"), uri("url", "http://x/colours")
	code := `{"name":"code","valueCode":"red"}`
	coding := func(members string) string { return `{"name":"coding","valueCoding":{` + members + `}}` }
	concept := func(codings string) string {
		return `{"name":"codeableConcept","valueCodeableConcept":{"text":"t","coding":[` + codings + `]}}`
	}
	const red, inSystem = `"system":"http://x/colours","code":"red"`, `"system":"http://x/colours"`
	infer := `{"name":"inferSystem","valueBoolean":true}`
	const valid, invalid = `{"name":"result","valueBoolean":true}`, `{"name":"result","valueBoolean":false}`
	tests := []struct {
		name, path string
		parameters []string
		status     int
		want       []string
		not        string
	}{
		{"nothing", valueSet, []string{url}, 400, []string{"Unable to find code to validate"}, ""},
		{"a system alone", valueSet, []string{url, uri("system", "http://x/colours")}, 400, []string{"Unable to find code to validate"}, ""},
		{"a code without a system", valueSet, []string{url, code}, 400, []string{"system"}, ""},
		{"an empty code", valueSet, []string{url, `{"name":"code","valueCode":""}`, uri("system", "http://x/colours")}, 400, []string{"empty"}, ""},
		{"a code and a Coding", valueSet, []string{url, code, uri("system", "http://x/colours"), coding(red)}, 400, []string{"exactly one"}, ""},
		{"a code whose system the value set has", valueSet, []string{url, code, infer}, 200, []string{valid}, ""},
		{"a code in a context", valueSet, []string{`{"name":"context","valueUri":"http://x/Paint#Paint.colour"}`, code}, 200, []string{valid}, ""},
		{"a Coding with a display beside it", valueSet, []string{url, coding(red), `{"name":"display","valueString":"x"}`}, 200, []string{valid}, ""},
		{"a Coding without a system", valueSet, []string{url, coding(`"code":"red"`)}, 200, []string{invalid, `"warning"`, "Coding has no system"}, ""},
		{"a Coding is not inferred", valueSet, []string{url, coding(`"code":"red"`), infer}, 200, []string{invalid, "Coding has no system"}, ""},
		{"a Coding without a code", valueSet, []string{url, coding(inSystem)}, 200, []string{invalid, `"warning"`, "Coding has no code", `["Coding"]`}, "not-in-vs"},
		{"a Coding without either", valueSet, []string{url, coding(`"display":"x"`)}, 200, []string{invalid, "neither a system nor a code"}, "not-in-vs"},
		{"a CodeableConcept without a code", valueSet, []string{url, concept(`{` + inSystem + `}`)}, 200, []string{invalid, `CodeableConcept.coding[0]"`}, "not-in-vs"},
		{"a CodeableConcept with one that is valid", valueSet, []string{url, concept(`{"code":"red"},{` + red + `}`)}, 200, []string{valid, "Coding has no system"}, ""},
		{"after one that is not", valueSet, []string{url, infer, concept(`{"code":"red"},{` + red + `}`)}, 200, []string{valid, `"valueCode":"red"`}, ""},
		{"in a code system: a code without one", system, []string{code}, 400, []string{"url"}, ""},
		{"in a version of a code system", system, []string{code, uri("url", "http://x/colours|1.0.0")}, 200, []string{valid, `"valueUri":"http://x/colours"`}, ""},
		{"in a version of a code system that is not here", system, []string{code, uri("url", "http://x/colours|9")}, 200, []string{invalid, "Valid versions: 1.0.0"}, "include"},
		{"in a code system that system names", system, []string{code, uri("system", "http://x/colours")}, 200, []string{valid, `"valueString":"Red"`}, ""},
		{"in a code system that is sent along", system, []string{code, `{"name":"codeSystem","resource":` + codeSystemWith("http://x/own", "3", "red") + `}`}, 200, []string{valid, "http://x/own"}, ""},
		{"in a code system: a Coding without a system", system, []string{colour, coding(`"code":"red"`)}, 200, []string{invalid, "Coding has no system"}, ""},
		{"in a code system: a Coding of another", system, []string{colour, coding(`"system":"http://x/y","code":"red"`)}, 400, []string{"http://x/y"}, ""},
		{"in a code system: a CodeableConcept", system, []string{colour, concept(`{"system":"http://x/y","code":"red"},{` + red + `}`)}, 200, []string{valid}, "http://x/y could"},
		{"in a code system: a CodeableConcept of others", system, []string{colour, concept(`{"system":"http://x/y","code":"red"}`)}, 200, []string{invalid, "no coding of the code system"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := call(t, h, "POST", test.path, parametersOf(test.parameters...))
			if w.Code != test.status {
				t.Errorf("got status %d", w.Code)
			}
			wantText(t, w.Body.String(), test.want...)
			if test.not != "" && strings.Contains(w.Body.String(), test.not) {
				t.Errorf("got %s", w.Body)
			}
		})
	}
}

// A code that is to be found in a value set without its system may be in another case where the code system says
// that case does not matter (R4 CodeSystem.caseSensitive).
func TestInferInAnyCase(t *testing.T) {
	insensitive := strings.Replace(codeSystemWith("http://x/ci", "1", "Abc"), `"content"`, `"caseSensitive":false,"content"`, 1)
	h := &Handler{Library: libraryOf(t, insensitive, allOf("http://x/ci"))}
	w, _ := call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/ci-all&code=aBC&inferSystem=true", "")
	wantText(t, w.Body.String(), `{"name":"result","valueBoolean":true}`, `{"name":"normalized-code","valueCode":"Abc"}`)
}
