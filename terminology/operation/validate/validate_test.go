package validate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// teams is a code system with concepts of each status.
const teams = `{"resourceType":"CodeSystem","url":"http://x/teams","version":"1","status":"active","content":"complete","language":"en",
	"property":[{"code":"status","uri":"http://hl7.org/fhir/concept-properties#status","type":"code"},
		{"code":"inactive","uri":"http://hl7.org/fhir/concept-properties#inactive","type":"boolean"},
		{"code":"notSelectable","uri":"http://hl7.org/fhir/concept-properties#notSelectable","type":"boolean"}],
	"concept":[{"code":"all","display":"All Teams","property":[{"code":"notSelectable","valueBoolean":true}]},{"code":"ward","display":"Ward 7 Team"},
		{"code":"shut","display":"Shut","property":[{"code":"inactive","valueBoolean":true}]},
		{"code":"gone","display":"Gone","property":[{"code":"status","valueCode":"retired"},{"code":"inactive","valueBoolean":true}]},
		{"code":"worse","display":"Worse","property":[{"code":"status","valueCode":"DISCOURAGED"},{"code":"inactive","valueBoolean":true}]},
		{"code":"old","display":"Old","property":[{"code":"status","valueCode":"deprecated"}]},
		{"code":"both","display":"Both","property":[{"code":"status","valueCode":"retired"},{"code":"inactive","valueBoolean":true}],
			"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status","valueCode":"deprecated"}]}]}`

// validationSummary is a summary of a $validate-code response: result, status, unknown definitions, issues, and the texts of
// issues that are not informational.
type validationSummary struct {
	result           bool
	inactive         bool
	status, unknown  string
	issues, messages []string
}

// readValidated parses a response. Each issue is formatted as severity code message-id@expression.
func readValidated(t *testing.T, body []byte) (f validationSummary) {
	t.Helper()
	var answer struct {
		Parameter []struct {
			Name                                   string
			ValueBoolean                           bool
			ValueString, ValueCode, ValueCanonical string
			Resource                               struct {
				Issue []struct {
					Severity, Code string
					Extension      []struct{ ValueString string }
					Expression     []string
					Details        struct{ Coding []struct{ Code string } }
				}
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, p := range answer.Parameter {
		switch p.Name {
		case "result":
			f.result = p.ValueBoolean
		case "inactive":
			f.inactive = p.ValueBoolean
		case "status":
			f.status = p.ValueCode
		case "x-unknown-system", "x-caused-by-unknown-system":
			f.unknown = p.ValueCanonical
		case "message":
			f.messages = strings.Split(p.ValueString, "; ")
		}
		for _, i := range p.Resource.Issue {
			f.issues = append(f.issues, fmt.Sprintf("%s %s %s@%s", i.Severity, i.Details.Coding[0].Code, i.Extension[0].ValueString, strings.Join(i.Expression, ",")))
		}
	}
	slices.Sort(f.issues)
	slices.Sort(f.messages)
	return f
}

// TestValidated checks that issues have the codes and texts used by all servers in HL7's terminology ecosystem.
func TestValidated(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, teams, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/teams"}]}`),
		fixture.ValueSet("http://x/abstract", `{"include":[{"system":"http://x/teams","filter":[{"property":"notSelectable","op":"=","value":"true"}]}]}`))}
	const in, notIn = "http://x/vs", "error not-in-vs None_of_the_provided_codes_are_in_the_value_set_one@Coding.code"
	coding := func(system, code, display string) string {
		text, _ := json.Marshal(map[string]any{"system": system, "code": code, "display": display})
		return `{"name":"coding","valueCoding":` + string(text) + `}`
	}
	of := func(code string) string { return coding("http://x/teams", code, "") }
	withDisplay := func(display string) string { return coding("http://x/teams", "ward", display) }
	lenient, concrete, only := `{"name":"lenient-display-validation","valueBoolean":true}`, `{"name":"abstract","valueBoolean":false}`, `{"name":"valueset-membership-only","valueBoolean":true}`
	wrong := func(what, display string) string {
		return "Wrong " + what + " '" + display + "' for http://x/teams#ward. Valid display is 'Ward 7 Team' (en) (for the language(s) '--')"
	}
	notFound := func(code string) string {
		return "The provided code '" + code + "' was not found in the value set '" + in + "'"
	}
	tests := []struct {
		name string
		sent []string
		want validationSummary
	}{
		{"inactive", []string{of("shut")}, validationSummary{result: true, inactive: true, issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'shut' has a status of inactive and its use should be reviewed"}}},
		{"inactive by status", []string{of("gone")}, validationSummary{result: true, inactive: true, status: "retired", issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'gone' has a status of retired and inactive and its use should be reviewed"}}},
		{"inactive by its status", []string{of("worse")}, validationSummary{result: true, inactive: true, status: "DISCOURAGED", issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'worse' has a status of DISCOURAGED and its use should be reviewed"}}},
		{"the property goes before the standards status", []string{of("both")}, validationSummary{result: true, inactive: true, status: "retired", issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'both' has a status of retired and inactive and its use should be reviewed"}}},
		{"deprecated is not inactive", []string{of("old")}, validationSummary{result: true, status: "deprecated", issues: []string{"warning code-comment DEPRECATED_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'old' is deprecated and its use should be reviewed"}}},
		{"inactive and not allowed", []string{of("gone"), `{"name":"activeOnly","valueBoolean":true}`}, validationSummary{inactive: true, status: "retired",
			issues:   []string{"error code-rule STATUS_CODE_WARNING_CODE@Coding.code", notIn, "warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'gone' has a status of retired and inactive and its use should be reviewed", "The concept 'gone' is valid but is not active", notFound("http://x/teams#gone")}}},
		{"a value set for a system", []string{coding(in, "ward", "")}, validationSummary{issues: []string{"error invalid-data Terminology_TX_System_ValueSet2@Coding.system", notIn},
			messages: []string{"The Coding references a value set, not a code system ('http://x/vs')", notFound("http://x/vs#ward")}}},
		{"the value set of all codes for a system", []string{coding("http://x/teams?fhir_vs", "ward", "")}, validationSummary{issues: []string{"error invalid-data Terminology_TX_System_ValueSet2@Coding.system", notIn},
			messages: []string{"The Coding references a value set, not a code system ('http://x/teams?fhir_vs')", notFound("http://x/teams?fhir_vs#ward")}}},
		{"a local system", []string{coding("teams", "ward", "")}, validationSummary{unknown: "teams",
			issues:   []string{"error invalid-data Terminology_TX_System_Relative@Coding.system", "error not-found UNKNOWN_CODESYSTEM@Coding.system", notIn},
			messages: []string{"A definition for CodeSystem teams could not be found, so the code cannot be validated", "Coding.system must be an absolute reference, not a local reference", notFound("teams#ward")}}},
		{"a path for a system", []string{coding("CodeSystem/a:b", "ward", "")}, validationSummary{unknown: "CodeSystem/a:b",
			issues:   []string{"error invalid-data Terminology_TX_System_Relative@Coding.system", "error not-found UNKNOWN_CODESYSTEM@Coding.system", notIn},
			messages: []string{"A definition for CodeSystem CodeSystem/a:b could not be found, so the code cannot be validated", "Coding.system must be an absolute reference, not a local reference", notFound("CodeSystem/a:b#ward")}}},
		{"an unknown system", []string{coding("urn:oid:1.2.3", "ward", "")}, validationSummary{unknown: "urn:oid:1.2.3", issues: []string{"error not-found UNKNOWN_CODESYSTEM@Coding.system", notIn},
			messages: []string{"A definition for CodeSystem urn:oid:1.2.3 could not be found, so the code cannot be validated", notFound("urn:oid:1.2.3#ward")}}},
		{"the right display in another case", []string{withDisplay("ward 7 TEAM")}, validationSummary{result: true}},
		{"wide spaces", []string{withDisplay("Ward  7 Team")}, validationSummary{issues: []string{"error invalid-display Display_Name_WS_for__should_be_one_of__instead_of@Coding.display"}, messages: []string{wrong("whitespace in Display Name", "Ward  7 Team")}}},
		{"spaces around", []string{withDisplay(" ward 7 Team "), lenient}, validationSummary{result: true, issues: []string{"warning invalid-display Display_Name_WS_for__should_be_one_of__instead_of@Coding.display"}, messages: []string{wrong("whitespace in Display Name", " ward 7 Team ")}}},
		{"no space between words", []string{withDisplay("Ward7Team")}, validationSummary{issues: []string{"error invalid-display Display_Name_for__should_be_one_of__instead_of@Coding.display"}, messages: []string{wrong("Display Name", "Ward7Team")}}},
		{"abstract", []string{of("all")}, validationSummary{result: true}},
		{"abstract and not allowed", []string{of("all"), concrete}, validationSummary{issues: []string{"error code-rule ABSTRACT_CODE_NOT_ALLOWED@Coding.code", notIn},
			messages: []string{"Code 'http://x/teams#all' is abstract, and not allowed in this context", notFound("http://x/teams#all")}}},
		{"abstract, not allowed, membership only", []string{of("all"), concrete, only}, validationSummary{issues: []string{notIn}, messages: []string{notFound("http://x/teams#all")}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.ParametersOf(append(test.sent, fixture.URI("url", in))...))
			if got := readValidated(t, w.Body.Bytes()); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.ParametersOf(fixture.URI("url", "http://x/abstract"), concrete, of("all")))
	if got := readValidated(t, w.Body.Bytes()); got.result || len(got.issues) != 2 {
		t.Errorf("abstract, by a filter: got %+v", got)
	}
	w, _ = terminologytest.Call(t, h, "POST", "/CodeSystem/$validate-code", fixture.ParametersOf(fixture.URI("url", "http://x/teams"), concrete, of("all")))
	if got := readValidated(t, w.Body.Bytes()); got.result || !slices.Equal(got.issues, []string{"error code-rule ABSTRACT_CODE_NOT_ALLOWED@Coding.code"}) {
		t.Errorf("abstract, in a code system: got %+v", got)
	}
}

// TestValidatedOfConcept checks that each coding of a CodeableConcept gets issues with its expression, and that an inactive
// coding does not affect the others.
func TestValidatedOfConcept(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, teams, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/teams"}]}`))}
	tests := []struct {
		name, codings string
		want          []string
		result        bool
	}{
		{"inactive after active", `{"system":"http://x/teams","code":"ward"},{"system":"http://x/teams","code":"gone"}`, []string{"warning code-comment INACTIVE_CONCEPT_FOUND@CodeableConcept.coding[1]"}, true},
		{"inactive before active", `{"system":"http://x/teams","code":"gone"},{"system":"http://x/teams","code":"ward"}`, []string{"warning code-comment INACTIVE_CONCEPT_FOUND@CodeableConcept.coding[0]"}, true},
		{"abstract", `{"system":"http://x/teams","code":"all"}`, []string{
			"error code-rule ABSTRACT_CODE_NOT_ALLOWED@CodeableConcept.coding[0].code", "error not-in-vs TX_GENERAL_CC_ERROR_MESSAGE@",
			"information this-code-not-in-vs None_of_the_provided_codes_are_in_the_value_set_one@CodeableConcept.coding[0].code"}, false},
		{"a local system", `{"system":"teams","code":"ward"}`, []string{
			"error invalid-data Terminology_TX_System_Relative@CodeableConcept.coding[0].system", "error not-found UNKNOWN_CODESYSTEM@CodeableConcept.coding[0].system",
			"error not-in-vs TX_GENERAL_CC_ERROR_MESSAGE@", "information this-code-not-in-vs None_of_the_provided_codes_are_in_the_value_set_one@CodeableConcept.coding[0].code"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.ParametersOf(fixture.URI("url", "http://x/vs"), `{"name":"abstract","valueBoolean":false}`,
				`{"name":"codeableConcept","valueCodeableConcept":{"coding":[`+test.codings+`]}}`))
			if got := readValidated(t, w.Body.Bytes()); !slices.Equal(got.issues, test.want) || got.result != test.result {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestValidatedInContained checks that a value set in a request may contain other value sets and may lack a URL.
func TestValidatedInContained(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, teams, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/teams"}]}`))}
	valueSet := func(imports string) string {
		return `{"name":"valueSet","resource":{"resourceType":"ValueSet","status":"active","compose":{"include":[{"valueSet":["` + imports + `","http://x/vs"]}]},
			"contained":[{"resourceType":"ValueSet","id":"few","url":"http://x/few","status":"active","compose":{"include":[{"system":"http://x/teams","concept":[{"code":"ward"}]}]}}]}}`
	}
	tests := []struct {
		imports, code string
		want          validationSummary
	}{
		{"#few", "ward", validationSummary{result: true}},
		{"http://x/few", "ward", validationSummary{result: true}},
		{"#few", "old", validationSummary{issues: []string{"error not-in-vs None_of_the_provided_codes_are_in_the_value_set_one@Coding.code"},
			messages: []string{"The provided code 'http://x/teams#old' was not found in the value set '(unidentified)'"}}},
		{"#none", "ward", validationSummary{issues: []string{"error not-found Unable_to_resolve_value_Set_@"}, messages: []string{"A definition for the value Set '#none' could not be found"}}},
	}
	for _, test := range tests {
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.ParametersOf(valueSet(test.imports), `{"name":"coding","valueCoding":{"system":"http://x/teams","code":"`+test.code+`"}}`))
		if got := readValidated(t, w.Body.Bytes()); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s in %s: got %+v\nwant %+v", test.code, test.imports, got, test.want)
		}
	}
}

// TestValidationInput checks that exactly one of code, coding and codeableConcept is required, and that a code needs a system,
// explicit or inferred (R4 ValueSet/$validate-code and CodeSystem/$validate-code). An incomplete Coding does not make the
// request invalid: the result is false with a warning (HL7 terminology ecosystem IG).
func TestValidationInput(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	const valueSet, system = "/ValueSet/$validate-code", "/CodeSystem/$validate-code"
	url, colour := fixture.URI("url", "http://x/is-red"), fixture.URI("url", "http://x/colours")
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
		{"a system alone", valueSet, []string{url, fixture.URI("system", "http://x/colours")}, 400, []string{"Unable to find code to validate"}, ""},
		{"a code without a system", valueSet, []string{url, code}, 400, []string{"system"}, ""},
		{"an empty code", valueSet, []string{url, `{"name":"code","valueCode":""}`, fixture.URI("system", "http://x/colours")}, 400, []string{"empty"}, ""},
		{"a code and a Coding", valueSet, []string{url, code, fixture.URI("system", "http://x/colours"), coding(red)}, 400, []string{"exactly one"}, ""},
		{"code with a system of the value set", valueSet, []string{url, code, infer}, 200, []string{valid}, ""},
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
		{"in a version of a code system", system, []string{code, fixture.URI("url", "http://x/colours|1.0.0")}, 200, []string{valid, `"valueUri":"http://x/colours"`}, ""},
		{"in a version of a code system that is not here", system, []string{code, fixture.URI("url", "http://x/colours|9")}, 200, []string{invalid, "Valid versions: 1.0.0"}, "include"},
		{"in a code system that system names", system, []string{code, fixture.URI("system", "http://x/colours")}, 200, []string{valid, `"valueString":"Red"`}, ""},
		{"in a code system that is sent along", system, []string{code, `{"name":"codeSystem","resource":` + fixture.SingleConceptCodeSystem("http://x/own", "3", "red") + `}`}, 200, []string{valid, "http://x/own"}, ""},
		{"in a code system: a Coding without a system", system, []string{colour, coding(`"code":"red"`)}, 200, []string{invalid, "Coding has no system"}, ""},
		{"in a code system: a Coding of another", system, []string{colour, coding(`"system":"http://x/y","code":"red"`)}, 400, []string{"http://x/y"}, ""},
		{"in a code system: a CodeableConcept", system, []string{colour, concept(`{"system":"http://x/y","code":"red"},{` + red + `}`)}, 200, []string{valid}, "http://x/y could"},
		{"in a code system: a CodeableConcept of others", system, []string{colour, concept(`{"system":"http://x/y","code":"red"}`)}, 200, []string{invalid, "no coding of the code system"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "POST", test.path, fixture.ParametersOf(test.parameters...))
			if w.Code != test.status {
				t.Errorf("got status %d", w.Code)
			}
			fixture.WantContains(t, w.Body.String(), test.want...)
			if test.not != "" && strings.Contains(w.Body.String(), test.not) {
				t.Errorf("got %s", w.Body)
			}
		})
	}
}

// TestInferInAnyCase checks that a code without a system matches regardless of case if its code system is case-insensitive (R4
// CodeSystem.caseSensitive).
func TestInferInAnyCase(t *testing.T) {
	insensitive := strings.Replace(fixture.SingleConceptCodeSystem("http://x/ci", "1", "Abc"), `"content"`, `"caseSensitive":false,"content"`, 1)
	h := &api.Handler{Library: terminologytest.Library(t, insensitive, fixture.AllCodesOf("http://x/ci"))}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/ci-all&code=aBC&inferSystem=true", "")
	fixture.WantContains(t, w.Body.String(), `{"name":"result","valueBoolean":true}`, `{"name":"normalized-code","valueCode":"Abc"}`)
}

// TestUnknownCodeInPart checks that an unknown code of an incomplete code system is not an error.
func TestUnknownCodeInPart(t *testing.T) {
	for _, content := range []string{"fragment", "example"} {
		h := &api.Handler{Library: terminologytest.Library(t, fixture.VersionedSystem("http://x/part", "1", content, "a"), fixture.ValueSet("http://x/all", `{"include":[{"system":"http://x/part"}]}`),
			fixture.ValueSet("http://x/listed", `{"include":[{"system":"http://x/part","concept":[{"code":"b"}]}]}`))}
		for _, path := range []string{"/CodeSystem/$validate-code?url=http://x/part", "/ValueSet/$validate-code?url=http://x/all&system=http://x/part", "/ValueSet/$validate-code?url=http://x/listed&system=http://x/part"} {
			t.Run(content+" "+path, func(t *testing.T) {
				w, _ := terminologytest.Call(t, h, "GET", path+"&code=b", "")
				fixture.WantContains(t, w.Body.String(), `{"name":"result","valueBoolean":true}`, `"severity":"warning"`, "labeled as a")
				if strings.Contains(w.Body.String(), `"severity":"error"`) {
					t.Errorf("got an error in %s", w.Body)
				}
			})
		}
	}
}

func TestValidateDetails(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours,
		fixture.ValueSet("http://x/active", `{"inactive":false,"include":[{"system":"http://x/colours"}]}`),
		fixture.ValueSet("http://x/loop", `{"include":[{"system":"http://x/colours"},{"valueSet":["http://x/loop"]}]}`),
		fixture.ValueSet("http://x/but", `{"include":[{"system":"http://x/colours"}],"exclude":[{"system":"http://x/colours","concept":[{"code":"blue"}]}]}`))}
	tests := []struct {
		name, query string
		want        []string
		not         string
	}{
		{"any display without a requested language", "url=http://x/active&code=red&display=ROT", []string{`"valueBoolean":true`}, "issue"},
		{"display in the language", "url=http://x/active&code=red&display=Rot&displayLanguage=de", []string{`"valueBoolean":true`}, "issue"},
		{"display in another language", "url=http://x/active&code=red&display=Red&displayLanguage=de", []string{`"valueBoolean":false`, "Valid display is one of 2 choices: 'Rot' (de) or 'Rot (CH)' (de-CH)"}, ""},
		{"inactive ones are not in it", "url=http://x/active&code=pink", []string{`"valueBoolean":false`, "valid but is not active"}, ""},
		{"excluded", "url=http://x/but&code=blue", []string{`"valueBoolean":false`, "not-in-vs"}, ""},
		{"not excluded", "url=http://x/but&code=red", []string{`"valueBoolean":true`}, "issue"},
		{"circle", "url=http://x/loop&code=red", []string{`"OperationOutcome"`, "VALUESET_CIRCULAR_REFERENCE"}, "Parameters"},
		{"other version", "url=http://x/active&code=red&systemVersion=9", []string{`"valueBoolean":false`, "Valid versions: 1.0.0"}, ""},
		{"bad language", "url=http://x/active&code=red&displayLanguage=-", []string{`"OperationOutcome"`, "Invalid displayLanguage"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?system=http://x/colours&"+test.query, "")
			fixture.WantContains(t, w.Body.String(), test.want...)
			if test.not != "" && strings.Contains(w.Body.String(), test.not) {
				t.Errorf("got %s", w.Body)
			}
		})
	}
}

func TestValidationOverridesValueSet(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters("activeOnly", "maybe"))}
	for query, status := range map[string]int{"": 400, "&activeOnly=true": 200} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/own&system=http://x/colours&code=red"+query, "")
		if w.Code != status {
			t.Errorf("%q: got %d %s", query, w.Code, w.Body)
		}
	}
}

func TestVersionNeeded(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ComplexCodeSystem, fixture.ValueSet("http://x/v", `{"include":[{"system":"http://x/demanding"}]}`))}
	for path, want := range map[string]string{
		"/ValueSet/$validate-code?url=http://x/v&system=http://x/demanding&code=a":                 "requires a version, but the code 'a' has none",
		"/ValueSet/$validate-code?url=http://x/v&system=http://x/demanding&code=a&systemVersion=1": `"valueBoolean":true`,
		"/CodeSystem/$validate-code?url=http://x/demanding&code=a":                                 "requires a version, but the code 'a' has none",
		"/CodeSystem/$validate-code?url=http://x/demanding&code=a&version=1":                       `"valueBoolean":true`,
	} {
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantContains(t, w.Body.String(), want)
	}
}

// TestUnknownSystemNeeded checks that membership is undecidable if a value set contains all codes of an unknown code system,
// but decidable if it enumerates codes.
func TestUnknownSystemNeeded(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ValueSet("http://x/all", `{"include":[{"system":"http://x/unknown"}]}`),
		fixture.ValueSet("http://x/list", `{"include":[{"system":"http://x/unknown","concept":[{"code":"a"}]}]}`))}
	for query, want := range map[string]struct{ is, isNot string }{
		"url=http://x/all&system=http://x/unknown&code=a":                               {`"x-caused-by-unknown-system","valueCanonical":"http://x/unknown"`, "not-in-vs"},
		"url=http://x/all&system=http://x/other&code=a":                                 {`"not-in-vs"`, "x-caused-by-unknown-system"},
		"url=http://x/list&system=http://x/unknown&code=b":                              {`"not-in-vs"`, "x-caused-by-unknown-system"},
		"url=http://x/all&system=http://x/unknown&code=a&valueset-membership-only=true": {`"not-in-vs"`, "x-caused-by-unknown-system"},
	} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?"+query, "")
		fixture.WantContains(t, w.Body.String(), want.is, `{"name":"result","valueBoolean":false}`)
		if strings.Contains(w.Body.String(), want.isNot) {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}

// TestContentNotPresent checks that codes of a code system with content not-present cannot be validated (R4 CodeSystem.content;
// HL7 terminology ecosystem IG).
func TestContentNotPresent(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	sct := "&system=http://snomed.info/sct&code=138875005"
	for path, want := range map[string]struct{ is, isNot string }{
		"/CodeSystem/$validate-code?url=http://snomed.info/sct&code=138875005":                              {"x-unknown-system", "Unknown code"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/condition-code" + sct:                    {"x-caused-by-unknown-system", "not-in-vs"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/administrative-gender" + sct:             {"not-in-vs", "Unknown code"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/condition-code&systemVersion=2020" + sct: {"x-caused-by-unknown-system", "Unknown code"},
	} {
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantContains(t, w.Body.String(), want.is, `{"name":"result","valueBoolean":false}`, "could not be found, so the code cannot be validated")
		if strings.Contains(w.Body.String(), want.isNot) {
			t.Errorf("%s: got %s", path, w.Body)
		}
	}
}

// TestCompositional checks that the message about an unknown code mentions that the code may be an unsupported expression.
func TestCompositional(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ComplexCodeSystem, fixture.Colours)}
	for system, want := range map[string]bool{"http://x/demanding": true, "http://x/colours": false} {
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$validate-code?version=1&code=a:b&url="+system, "")
		fixture.WantContains(t, w.Body.String(), `"valueBoolean":false`)
		if strings.Contains(w.Body.String(), `"code":"processing-note"`) != want {
			t.Errorf("%s: got %s", system, w.Body)
		}
	}
}

func TestContainedValidation(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.ContainedShapes)}
	for _, test := range []struct{ query, want string }{
		{"url=http://x/v&system=http://x/shapes&code=oval&display=Oval", `"name":"result","valueBoolean":true`},
		{"url=http://x/v&system=http://x/shapes&code=square&systemVersion=1", `"name":"result","valueBoolean":true`},
		{"url=http://x/v%23round&system=http://x/shapes&code=oval", `"name":"result","valueBoolean":true`},
		{"url=http://x/v%23round&system=http://x/shapes&code=square", `"name":"result","valueBoolean":false`},
		{"url=http://x/v&system=http://x/shapes&code=flat", `"name":"result","valueBoolean":false`},
		{"url=http://x/v&system=http://x/v%23nameless&code=flat", `"name":"result","valueBoolean":true`},
	} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?"+test.query, "")
		fixture.WantContains(t, w.Body.String(), test.want)
	}
}

// TestImportsAreSearchedOnce checks that a value set that is imported repeatedly is searched only once, including its own
// imports. Otherwise, each level would double the work, and a request of 4 KB could take hours.
func TestImportsAreSearchedOnce(t *testing.T) {
	l := terminologytest.ColourLibrary(t)
	l.Definitions().Bounds.VisitedCodes = 1000
	const depth = 20
	var resources strings.Builder
	for i := range depth {
		next := fmt.Sprintf(`{"valueSet":["http://x/%d"]}`, i+1)
		fmt.Fprintf(&resources, `,{"name":"tx-resource","resource":%s}`, fixture.ValueSet(fmt.Sprintf("http://x/%d", i), `{"include":[`+next+`,`+next+`]}`))
	}
	fmt.Fprintf(&resources, `,{"name":"tx-resource","resource":%s}`, fixture.ValueSet(fmt.Sprintf("http://x/%d", depth), `{"include":[{"system":"http://x/colours"}]}`))
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/0"},{"name":"code","valueCode":"red"},{"name":"system","valueUri":"http://x/colours"}` + resources.String() + `]}`
	if w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$validate-code", body); w.Code != 200 || !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":true}`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestManyCodings validates a thousand codings against a hundred hierarchical includes, each of which contains all codings.
// This is fast because the ancestors of each coding are searched, not the descendants of each include.
func TestManyCodings(t *testing.T) {
	const n, deep = 1000, 100
	concepts := fixture.Repeat(n, func(i int) string { return fmt.Sprintf(`{"code":"c%d"}`, i) })
	for i := range deep {
		concepts = fmt.Sprintf(`{"code":"p%d","concept":[%s]}`, i, concepts)
	}
	system := `{"resourceType":"CodeSystem","url":"http://x/b","status":"active","content":"complete","concept":[` + concepts + `]}`
	set := fixture.ValueSet("http://x/vs", `{"include":[`+fixture.Repeat(deep, func(i int) string {
		return fmt.Sprintf(`{"system":"http://x/b","filter":[{"property":"concept","op":"is-a","value":"p%d"}]}`, i)
	})+`]}`)
	body := fixture.ParametersOf(`{"name":"url","valueUri":"http://x/vs"}`, `{"name":"codeableConcept","valueCodeableConcept":{"coding":[`+
		fixture.Repeat(n, func(i int) string { return fmt.Sprintf(`{"system":"http://x/b","code":"c%d"}`, i) })+`]}}`)
	w, answer := terminologytest.Call(t, &api.Handler{Library: terminologytest.Library(t, system, set)}, http.MethodPost, "/ValueSet/$validate-code", body)
	if w.Code != http.StatusOK || !strings.Contains(fmt.Sprint(answer), "name:result valueBoolean:true") {
		t.Errorf("got %d %.300s", w.Code, w.Body)
	}
}

// TestAllVersions checks R4 ValueSet.compose.include.version: "The version of the code system that the codes are selected from,
// or the special version '*' for all versions."
func TestAllVersions(t *testing.T) {
	dated := strings.Replace(fixture.VersionedSystem("http://x/cs", "3", "complete", "d"), `"status"`, `"date":"2026","status"`, 1)
	of := func(version, more string) string {
		return fmt.Sprintf(`{"system":"http://x/cs","version":%q%s}`, version, more)
	}
	compose := map[string]string{
		"all": `{"include":[` + of("*", "") + `]}`, "listed": `{"include":[` + of("*", `,"concept":[{"code":"a"},{"code":"d"}]`) + `]}`,
		"filtered":   `{"include":[` + of("*", `,"filter":[{"property":"code","op":"regex","value":"[ab]"}]`) + `]}`,
		"but":        `{"include":[` + of("*", "") + `],"exclude":[` + of("2", "") + `]}`,
		"none":       `{"include":[` + of("1", "") + `],"exclude":[` + of("*", "") + `]}`,
		"locked":     `{"lockedDate":"2025-01-01","include":[` + of("*", "") + `]}`,
		"empty":      `{"include":[{"system":"http://x/gone","version":"*"}]}`,
		"gone":       `{"include":[{"system":"http://x/gone","version":"*","concept":[{"code":"a"}]}]}`,
		"imports":    `{"include":[{"valueSet":["http://x/all"]}]}`,
		"everything": `{"include":[` + of("*", "") + `,{"system":"http://x/other"}]}`,
	}
	definitions := []string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a b"), fixture.VersionedSystem("http://x/cs", "2", "complete", "b c"), dated,
		fixture.VersionedSystem("http://x/cs", "9", "not-present", ""), fixture.VersionedSystem("http://x/other", "1", "complete", "z")}
	for name, c := range compose {
		definitions = append(definitions, fixture.ValueSet("http://x/"+name, c))
	}
	h := &api.Handler{Library: terminologytest.Library(t, definitions...)}
	tests := []struct {
		name  string
		pairs []string
		want  string // code|version
	}{
		{"all", nil, "d|3 b|2 c|2 a|1 b|1"},
		{"all", []string{"versionsMatch", "true"}, "d|3 b|2 c|2 a|1"},
		{"all", []string{"date", "2020"}, "b|2 c|2 a|1 b|1"},
		{"all", []string{"force-system-version", "http://x/cs|2"}, "b|2 c|2"},
		{"all", []string{"exclude-system", "http://x/cs|2"}, "d|3 a|1 b|1"},
		{"listed", nil, "d|3 a|1"},
		{"filtered", nil, "b|2 a|1 b|1"},
		{"but", nil, "d|3 a|1 b|1"},
		{"none", nil, ""},
		{"locked", nil, "b|2 c|2 a|1 b|1"},
		{"gone", nil, "a"},
		{"imports", nil, "d|3 b|2 c|2 a|1 b|1"},
		{"everything", nil, "d|3 b|2 c|2 a|1 b|1 z|1"},
	}
	for _, test := range tests {
		got := terminologytest.ExpandWith(t, h, append([]string{"url", "http://x/" + test.name}, test.pairs...)...)
		var codes []string
		for _, c := range got.Expansion.Contains {
			codes = append(codes, outcome.Canonical(c.Code, c.Version))
		}
		if want := strings.Fields(test.want); !slices.Equal(codes, want) {
			t.Errorf("%s %q: got %q, want %q", test.name, test.pairs, codes, want)
		}
	}
	if e := terminologytest.ExpandError(t, h.Library, "url", "http://x/empty"); e.Missing[0].Canonical != "http://x/gone" {
		t.Errorf("not here in any version: got %v", e)
	}
	for query, want := range map[string]bool{"code=a": true, "code=c": true, "code=d": true, "code=e": false, "code=a&systemVersion=1": true, "code=a&systemVersion=2": false} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&"+query, "")
		if got := readValidated(t, w.Body.Bytes()); got.result != want {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}

// storedSet returns a value set without a compose. expansion contains the members of its expansion.
func storedSet(url, expansion string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":"stored","url":%q,"status":"active","expansion":{"identifier":"urn:oid:1.2.3","timestamp":"2020-01-02T03:04:05Z",%s}}`, url, expansion)
}

// pills contains codes of a missing code system, and codes of a code system that lacks one of them.
const pills = `"contains":[{"system":"http://x/pills","version":"7","code":"1","display":"Aspirin","designation":[{"language":"de","value":"Kopfwehmittel"}]},
	{"display":"Others","abstract":true,"contains":[{"system":"http://x/pills","version":"7","code":"2","display":"Ibuprofen","inactive":true},
		{"system":"http://x/colours","code":"red"},{"system":"http://x/colours","code":"mauve","display":"Mauve"}]}]`

// TestStoredExpansion checks value sets that have only an expansion, in files and in requests.
func TestStoredExpansion(t *testing.T) {
	const url = "http://x/stored"
	importing := `{"resourceType":"ValueSet","url":"http://x/importing","compose":{"include":[{"valueSet":["http://x/stored"]}]}}`
	loaded := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, storedSet(url, pills), importing)}
	none := &api.Handler{Library: terminologytest.Library(t, fixture.Colours)}
	parameters := func(more string) string {
		return `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":` + storedSet(url, pills) + `}` + more + `]}`
	}
	for name, tt := range map[string]struct {
		h            *api.Handler
		method, path string
		body         string
		want         []string
	}{
		"loaded":     {loaded, "GET", "/ValueSet/$expand?url=" + url, "", []string{"1", "2", "red", "mauve"}},
		"by id":      {loaded, "GET", "/ValueSet/stored/$expand", "", []string{"1", "2", "red", "mauve"}},
		"filtered":   {loaded, "GET", "/ValueSet/$expand?filter=kopfweh&url=" + url, "", []string{"1"}},
		"activeOnly": {loaded, "GET", "/ValueSet/$expand?activeOnly=true&url=" + url, "", []string{"1", "red", "mauve"}},
		"page":       {loaded, "GET", "/ValueSet/$expand?offset=1&count=2&url=" + url, "", []string{"2", "red"}},
		"imported":   {loaded, "GET", "/ValueSet/$expand?url=http://x/importing", "", []string{"1", "2", "red", "mauve"}},
		"posted":     {none, "POST", "/ValueSet/$expand", parameters(""), []string{"1", "2", "red", "mauve"}},
	} {
		w, got := terminologytest.Call(t, tt.h, tt.method, tt.path, tt.body)
		codes, expanded := codesIn(got)
		if w.Code != http.StatusOK || !slices.Equal(codes, tt.want) {
			t.Errorf("%s: got %d %v, want %v: %s", name, w.Code, codes, tt.want, w.Body)
		}
		if name != "imported" && expanded["timestamp"] != "2020-01-02T03:04:05Z" || !strings.Contains(w.Body.String(), `{"name":"used-expansion","valueUri":"urn:oid:1.2.3"}`) {
			t.Errorf("%s: its origin is not in the answer: %s", name, w.Body)
		}
	}
	for name, tt := range map[string]struct {
		h      *api.Handler
		coding string
		want   string
	}{
		"in it":                  {loaded, "system=http://x/pills&code=1", "true"},
		"not in it":              {loaded, "system=http://x/pills&code=3", "false"},
		"of a code system here":  {loaded, "system=http://x/colours&code=red", "true"},
		"another of it":          {loaded, "system=http://x/colours&code=pink", "false"},
		"imported":               {loaded, "system=http://x/pills&code=1&url=http://x/importing", "true"},
		"imported and not in it": {loaded, "system=http://x/colours&code=pink&url=http://x/importing", "false"},
	} {
		path := "/ValueSet/$validate-code?" + tt.coding
		if !strings.Contains(path, "url=") {
			path += "&url=" + url
		}
		if w, _ := terminologytest.Call(t, tt.h, "GET", path, ""); !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":`+tt.want+`}`) {
			t.Errorf("%s: want %s: %s", name, tt.want, w.Body)
		}
	}
	coding := `,{"name":"coding","valueCoding":{"system":"http://x/pills","code":"1"}}`
	if w, _ := terminologytest.Call(t, none, "POST", "/ValueSet/$validate-code", parameters(coding)); !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":true}`) {
		t.Errorf("posted: %s", w.Body)
	}
}

// codesIn returns the codes in a response and its expansion.
func codesIn(answer map[string]any) (codes []string, expanded map[string]any) {
	expanded, _ = answer["expansion"].(map[string]any)
	list, _ := expanded["contains"].([]any)
	for _, entry := range list {
		codes = append(codes, fmt.Sprint(entry.(map[string]any)["code"]))
	}
	return codes, expanded
}

// TestPartialExpansion checks that incomplete stored expansions are rejected and that the error states why they are incomplete.
func TestPartialExpansion(t *testing.T) {
	for name, expansion := range map[string]string{
		"it has 4 of 5 codes":                                    `"total":5,` + pills,
		"it starts at an offset":                                 `"offset":4,` + pills,
		"it was generated with the parameter filter":             `"parameter":[{"name":"filter","valueString":"a"}],` + pills,
		"the parameter count and has no total":                   `"parameter":[{"name":"count","valueInteger":4}],` + pills,
		"it has the extension valueset-toocostly":                `"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-toocostly","valueBoolean":true}],` + pills,
		"it has the extension valueset-unclosed":                 `"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-unclosed","valueBoolean":true}],` + pills,
		"an entry has no system":                                 `"contains":[{"code":"1"}]`,
		"has no compose, and its stored expansion is incomplete": `"total":9,` + pills,
	} {
		h := &api.Handler{Library: terminologytest.Library(t, storedSet("http://x/stored", expansion))}
		if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/stored", ""); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), name) {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/stored&system=http://x/pills&code=1", "")
		if !strings.Contains(w.Body.String(), name) || strings.Contains(w.Body.String(), "could not be found") {
			t.Errorf("%s: $validate-code: got %d %s", name, w.Code, w.Body)
		}
	}
	complete := &api.Handler{Library: terminologytest.Library(t, storedSet("http://x/stored", `"total":4,"offset":0,"parameter":[{"name":"count","valueInteger":1000}],`+pills))}
	if w, _ := terminologytest.Call(t, complete, "GET", "/ValueSet/$expand?url=http://x/stored", ""); w.Code != http.StatusOK {
		t.Errorf("a complete one: got %d %s", w.Code, w.Body)
	}
}

// TestListedUnchecked checks that enumerated codes are in the value set even if their code system or version is missing. Both
// $expand and $validate-code report that the codes are unchecked.
func TestListedUnchecked(t *testing.T) {
	list := func(members string) string {
		return `{"include":[{` + members + `,"concept":[{"code":"a","display":"Alpha","designation":[{"language":"de","value":"Anton"}]},{"code":"b"}]}]}`
	}
	h := &api.Handler{Library: terminologytest.Library(t,
		fixture.VersionedSystem("http://x/here", "1", "complete", "a"), fixture.VersionedSystem("http://x/bare", "1", "not-present", ""), fixture.VersionedSystem("http://x/part", "1", "fragment", "z"),
		fixture.ValueSet("http://x/gone", list(`"system":"http://x/none"`)), fixture.ValueSet("http://x/version", list(`"system":"http://x/here","version":"7"`)),
		fixture.ValueSet("http://x/not-present", list(`"system":"http://x/bare"`)), fixture.ValueSet("http://x/fragment", list(`"system":"http://x/part"`)),
		fixture.ValueSet("http://x/known", list(`"system":"http://x/here"`)), fixture.ValueSet("http://x/imports", `{"include":[{"valueSet":["http://x/gone","http://x/gone"]}]}`),
		fixture.ValueSet("http://x/whole", `{"include":[{"system":"http://x/here"}],"exclude":[{"system":"http://x/none","concept":[{"code":"a"}]}]}`))}
	const unknown = "warning not-found UNKNOWN_CODESYSTEM@Coding.system"
	tests := []struct {
		name, system string
		warning      string // warning-unknown-system
		codes        string
		issues       []string
	}{
		{"gone", "http://x/none", "http://x/none", "a b", []string{unknown}},
		{"version", "http://x/here", "http://x/here|7", "a b", []string{unknown}},
		{"not-present", "http://x/bare", "http://x/bare", "a b", []string{unknown}},
		{"imports", "http://x/none", "http://x/none", "a b", []string{unknown}},
		{"fragment", "http://x/part", "", "a b", []string{"warning invalid-code UNKNOWN_CODE_IN_FRAGMENT@Coding.code"}},
		{"known", "http://x/here", "", "a", nil},
		{"whole", "http://x/here", "http://x/none", "a", nil},
	}
	validate := func(url, system, code, more string) validationSummary {
		coding := `{"name":"coding","valueCoding":{"system":"` + system + `","code":"` + code + `"` + more + `}}`
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.ParametersOf(fixture.URI("url", url), coding))
		return readValidated(t, w.Body.Bytes())
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			url := "http://x/" + test.name
			got := terminologytest.ExpandWith(t, h, "url", url)
			terminologytest.WantCodes(t, got, test.codes)
			var warnings []string
			for _, p := range got.Parameters() {
				if warning, ok := strings.CutPrefix(p, "warning-unknown-system="); ok {
					warnings = append(warnings, warning)
				}
			}
			if strings.Join(warnings, " ") != test.warning {
				t.Errorf("got warnings %q", warnings)
			}
			for _, code := range []string{"a", "b", "c"} {
				listed := slices.Contains(strings.Fields(test.codes), code)
				if got := validate(url, test.system, code, ""); got.result != listed || listed && !slices.Equal(got.issues, test.issues) {
					t.Errorf("%s: got %+v", code, got)
				}
			}
		})
	}
	for display, want := range map[string]bool{"Alpha": true, "alpha": true, "Anton": true, "Beta": false} {
		if got := validate("http://x/gone", "http://x/none", "a", `,"display":"`+display+`"`); got.result != want {
			t.Errorf("display %s: got %+v", display, got)
		}
	}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/gone&system=http://x/none&code=a", "")
	fixture.WantContains(t, w.Body.String(), `{"name":"display","valueString":"Alpha"}`,
		`"A definition for CodeSystem http://x/none could not be found, so the code, which the value set enumerates, cannot be checked"`)
}

// TestUncheckedCodeCallsServers checks that other servers are called first if an enumerated code cannot be checked because its code
// system is missing. If they fail, the local result is used.
func TestUncheckedCodeCallsServers(t *testing.T) {
	h := &api.Handler{HasOtherServers: true, Library: terminologytest.Library(t, fixture.ComposedValueSet("http://x/lists", "1", `{"system":"http://x/gone","version":"2","concept":[{"code":"a"}]}`))}
	w := httptest.NewRecorder()
	err := terminologytest.ServeError(h, w, httptest.NewRequest(http.MethodGet, "/ValueSet/$validate-code?url=http://x/lists&system=http://x/gone&code=a", nil))
	var e *outcome.Error
	if !errors.As(err, &e) || !slices.Contains(e.Missing, outcome.MissingOf("CodeSystem", "http://x/gone", "2")[0]) {
		t.Fatalf("got %v", err)
	}
	if err := terminologytest.WriteProvisional(w, e); err != nil || !readValidated(t, w.Body.Bytes()).result {
		t.Errorf("got %v, %s", err, w.Body)
	}
}

// TestFragmentOfOtherSystem checks that an unknown code of a fragment may belong to the complete code system, but that this
// does not affect value sets with other codes.
func TestFragmentOfOtherSystem(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.VersionedSystem("http://x/part", "1", "fragment", "a b"), fixture.VersionedSystem("http://x/here", "1", "complete", "a"),
		fixture.AllCodesOf("http://x/part"), fixture.AllCodesOf("http://x/here"), fixture.ValueSet("http://x/filtered", `{"include":[{"system":"http://x/part","filter":[{"property":"code","op":"regex","value":"."}]}]}`),
		fixture.ValueSet("http://x/listed", `{"include":[{"system":"http://x/part","concept":[{"code":"a"}]}]}`),
		fixture.ValueSet("http://x/but", `{"include":[{"system":"http://x/part"}],"exclude":[{"system":"http://x/part","concept":[{"code":"other"}]}]}`))}
	for url, want := range map[string]bool{"part-all": true, "here-all": false, "filtered": false, "listed": false, "but": false} {
		w, _ := terminologytest.Call(t, h, "GET", fmt.Sprintf("/ValueSet/$validate-code?url=http://x/%s&system=http://x/part&code=other", url), "")
		if got := readValidated(t, w.Body.Bytes()); got.result != want {
			t.Errorf("%s: got %s", url, w.Body)
		}
	}
}

// TestMismatchOfSource checks that the reason for a filter mismatch is only in the message, as on other servers.
func TestMismatchOfSource(t *testing.T) {
	h := &api.Handler{Library: terminologytest.SourceLibrary(t, fixture.ValueSet("http://x/lengths", `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"=","value":"7cm"}]}]}`))}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/lengths&system=http://x/measures&code=7s", "")
	if !strings.Contains(w.Body.String(), "Code 7s is not = 7cm; ") || strings.Count(w.Body.String(), `"details"`) != 1 {
		t.Errorf("got %s", w.Body)
	}
}
