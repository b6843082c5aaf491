package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// teams is a code system with concepts of all standings.
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

// validated is what $validate-code answers, in short: the result, the status, what is unknown, the issues and the texts
// of those that are not merely told of.
type validated struct {
	result           bool
	inactive         bool
	status, unknown  string
	issues, messages []string
}

// readValidated reads the Parameters of an answer. Each issue is severity code message-id@expression.
func readValidated(t *testing.T, body []byte) (f validated) {
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

// What is found of a code, in the words and with the codes that the servers of HL7's terminology ecosystem share.
func TestValidated(t *testing.T) {
	h := &Handler{Library: libraryOf(t, teams, valueSetOf("http://x/vs", `{"include":[{"system":"http://x/teams"}]}`),
		valueSetOf("http://x/abstract", `{"include":[{"system":"http://x/teams","filter":[{"property":"notSelectable","op":"=","value":"true"}]}]}`))}
	const in, notIn = "http://x/vs", "error not-in-vs None_of_the_provided_codes_are_in_the_value_set_one@Coding.code"
	coding := func(system, code, display string) string {
		text, _ := json.Marshal(map[string]any{"system": system, "code": code, "display": display})
		return `{"name":"coding","valueCoding":` + string(text) + `}`
	}
	of := func(code string) string { return coding("http://x/teams", code, "") }
	shown := func(display string) string { return coding("http://x/teams", "ward", display) }
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
		want validated
	}{
		{"inactive", []string{of("shut")}, validated{result: true, inactive: true, issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'shut' has a status of inactive and its use should be reviewed"}}},
		{"inactive by status", []string{of("gone")}, validated{result: true, inactive: true, status: "retired", issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'gone' has a status of retired and inactive and its use should be reviewed"}}},
		{"inactive by a status that says so", []string{of("worse")}, validated{result: true, inactive: true, status: "DISCOURAGED", issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'worse' has a status of DISCOURAGED and its use should be reviewed"}}},
		{"the property goes before the standards status", []string{of("both")}, validated{result: true, inactive: true, status: "retired", issues: []string{"warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'both' has a status of retired and inactive and its use should be reviewed"}}},
		{"deprecated is not inactive", []string{of("old")}, validated{result: true, status: "deprecated", issues: []string{"warning code-comment DEPRECATED_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'old' is deprecated and its use should be reviewed"}}},
		{"inactive and not allowed", []string{of("gone"), `{"name":"activeOnly","valueBoolean":true}`}, validated{inactive: true, status: "retired",
			issues:   []string{"error code-rule STATUS_CODE_WARNING_CODE@Coding.code", notIn, "warning code-comment INACTIVE_CONCEPT_FOUND@Coding"},
			messages: []string{"The concept 'gone' has a status of retired and inactive and its use should be reviewed", "The concept 'gone' is valid but is not active", notFound("http://x/teams#gone")}}},
		{"a value set for a system", []string{coding(in, "ward", "")}, validated{issues: []string{"error invalid-data Terminology_TX_System_ValueSet2@Coding.system", notIn},
			messages: []string{"The Coding references a value set, not a code system ('http://x/vs')", notFound("http://x/vs#ward")}}},
		{"the value set of all codes for a system", []string{coding("http://x/teams?fhir_vs", "ward", "")}, validated{issues: []string{"error invalid-data Terminology_TX_System_ValueSet2@Coding.system", notIn},
			messages: []string{"The Coding references a value set, not a code system ('http://x/teams?fhir_vs')", notFound("http://x/teams?fhir_vs#ward")}}},
		{"a local system", []string{coding("teams", "ward", "")}, validated{unknown: "teams",
			issues:   []string{"error invalid-data Terminology_TX_System_Relative@Coding.system", "error not-found UNKNOWN_CODESYSTEM@Coding.system", notIn},
			messages: []string{"A definition for CodeSystem teams could not be found, so the code cannot be validated", "Coding.system must be an absolute reference, not a local reference", notFound("teams#ward")}}},
		{"a path for a system", []string{coding("CodeSystem/a:b", "ward", "")}, validated{unknown: "CodeSystem/a:b",
			issues:   []string{"error invalid-data Terminology_TX_System_Relative@Coding.system", "error not-found UNKNOWN_CODESYSTEM@Coding.system", notIn},
			messages: []string{"A definition for CodeSystem CodeSystem/a:b could not be found, so the code cannot be validated", "Coding.system must be an absolute reference, not a local reference", notFound("CodeSystem/a:b#ward")}}},
		{"an unknown system", []string{coding("urn:oid:1.2.3", "ward", "")}, validated{unknown: "urn:oid:1.2.3", issues: []string{"error not-found UNKNOWN_CODESYSTEM@Coding.system", notIn},
			messages: []string{"A definition for CodeSystem urn:oid:1.2.3 could not be found, so the code cannot be validated", notFound("urn:oid:1.2.3#ward")}}},
		{"the right display in another case", []string{shown("ward 7 TEAM")}, validated{result: true}},
		{"wide spaces", []string{shown("Ward  7 Team")}, validated{issues: []string{"error invalid-display Display_Name_WS_for__should_be_one_of__instead_of@Coding.display"}, messages: []string{wrong("whitespace in Display Name", "Ward  7 Team")}}},
		{"spaces around", []string{shown(" ward 7 Team "), lenient}, validated{result: true, issues: []string{"warning invalid-display Display_Name_WS_for__should_be_one_of__instead_of@Coding.display"}, messages: []string{wrong("whitespace in Display Name", " ward 7 Team ")}}},
		{"no space between words", []string{shown("Ward7Team")}, validated{issues: []string{"error invalid-display Display_Name_for__should_be_one_of__instead_of@Coding.display"}, messages: []string{wrong("Display Name", "Ward7Team")}}},
		{"abstract", []string{of("all")}, validated{result: true}},
		{"abstract and not allowed", []string{of("all"), concrete}, validated{issues: []string{"error code-rule ABSTRACT_CODE_NOT_ALLOWED@Coding.code", notIn},
			messages: []string{"Code 'http://x/teams#all' is abstract, and not allowed in this context", notFound("http://x/teams#all")}}},
		{"abstract, not allowed, and only membership asked for", []string{of("all"), concrete, only}, validated{issues: []string{notIn}, messages: []string{notFound("http://x/teams#all")}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := call(t, h, "POST", "/ValueSet/$validate-code", parametersOf(append(test.sent, uri("url", in))...))
			if got := readValidated(t, w.Body.Bytes()); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
	w, _ := call(t, h, "POST", "/ValueSet/$validate-code", parametersOf(uri("url", "http://x/abstract"), concrete, of("all")))
	if got := readValidated(t, w.Body.Bytes()); got.result || len(got.issues) != 2 {
		t.Errorf("abstract, by a filter: got %+v", got)
	}
	w, _ = call(t, h, "POST", "/CodeSystem/$validate-code", parametersOf(uri("url", "http://x/teams"), concrete, of("all")))
	if got := readValidated(t, w.Body.Bytes()); got.result || !slices.Equal(got.issues, []string{"error code-rule ABSTRACT_CODE_NOT_ALLOWED@Coding.code"}) {
		t.Errorf("abstract, in a code system: got %+v", got)
	}
}

// Each coding of a CodeableConcept is told of at its place; that one is inactive says nothing of another.
func TestValidatedOfConcept(t *testing.T) {
	h := &Handler{Library: libraryOf(t, teams, valueSetOf("http://x/vs", `{"include":[{"system":"http://x/teams"}]}`))}
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
			w, _ := call(t, h, "POST", "/ValueSet/$validate-code", parametersOf(uri("url", "http://x/vs"), `{"name":"abstract","valueBoolean":false}`,
				`{"name":"codeableConcept","valueCodeableConcept":{"coding":[`+test.codings+`]}}`))
			if got := readValidated(t, w.Body.Bytes()); !slices.Equal(got.issues, test.want) || got.result != test.result {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A value set that a request holds may contain others, and need have no url.
func TestValidatedInContained(t *testing.T) {
	h := &Handler{Library: libraryOf(t, teams, valueSetOf("http://x/vs", `{"include":[{"system":"http://x/teams"}]}`))}
	valueSet := func(imports string) string {
		return `{"name":"valueSet","resource":{"resourceType":"ValueSet","status":"active","compose":{"include":[{"valueSet":["` + imports + `","http://x/vs"]}]},
			"contained":[{"resourceType":"ValueSet","id":"few","url":"http://x/few","status":"active","compose":{"include":[{"system":"http://x/teams","concept":[{"code":"ward"}]}]}}]}}`
	}
	tests := []struct {
		imports, code string
		want          validated
	}{
		{"#few", "ward", validated{result: true}},
		{"http://x/few", "ward", validated{result: true}},
		{"#few", "old", validated{issues: []string{"error not-in-vs None_of_the_provided_codes_are_in_the_value_set_one@Coding.code"},
			messages: []string{"The provided code 'http://x/teams#old' was not found in the value set '(unidentified)'"}}},
		{"#none", "ward", validated{issues: []string{"error not-found Unable_to_resolve_value_Set_@"}, messages: []string{"A definition for the value Set '#none' could not be found"}}},
	}
	for _, test := range tests {
		w, _ := call(t, h, "POST", "/ValueSet/$validate-code", parametersOf(valueSet(test.imports), `{"name":"coding","valueCoding":{"system":"http://x/teams","code":"`+test.code+`"}}`))
		if got := readValidated(t, w.Body.Bytes()); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s in %s: got %+v\nwant %+v", test.code, test.imports, got, test.want)
		}
	}
}

// A bad entry of a batch has an OperationOutcome in its place, and the others have their answers.
func TestBatchValidateBad(t *testing.T) {
	h := &Handler{Library: colourLibrary(t)}
	entry := func(parameters ...string) string {
		return `{"name":"validation","resource":` + parametersOf(parameters...) + `}`
	}
	red := `{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`
	bad := []struct{ name, entry, want string }{
		{"nothing to validate", entry(`{"name":"codingX","valueCoding":{"system":"http://x/colours","code":"red"}}`), `"code":"invalid","details":{"text":"Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)"}`},
		{"two codes", entry(red, `{"name":"code","valueCode":"red"}`), "exactly one"},
		{"a code without a system", entry(`{"name":"code","valueCode":"red"}`), "needs the parameter system"},
		{"an unknown value set", entry(red, uri("url", "http://x/none")), `"Unable_to_resolve_value_Set_"`},
		{"a broken Coding", entry(`{"name":"coding","valueCoding":{"system":1}}`), `"structure"`},
		{"no resource", `{"name":"validation","valueString":"x"}`, "must be a Parameters resource"},
		{"another resource", `{"name":"validation","resource":{"resourceType":"Patient"}}`, "not Patient"},
		{"a bad parameter", entry(red, `{"name":"displayLanguage","valueCode":"--"}`), "displayLanguage"},
	}
	for _, test := range bad {
		t.Run(test.name, func(t *testing.T) {
			w, answer := call(t, h, "POST", "/ValueSet/$batch-validate-code", parametersOf(uri("url", "http://x/is-red"), entry(red), test.entry, entry(red)))
			var kinds []string
			for _, p := range answer["parameter"].([]any) {
				kinds = append(kinds, p.(map[string]any)["resource"].(map[string]any)["resourceType"].(string))
			}
			if w.Code != 200 || !slices.Equal(kinds, []string{"Parameters", "OperationOutcome", "Parameters"}) || strings.Count(w.Body.String(), `{"name":"result","valueBoolean":true}`) != 2 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			wantText(t, w.Body.String(), test.want)
		})
	}
}

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

// A code system that is here only in part does not turn codes of the rest into errors.
func TestUnknownCodeInPart(t *testing.T) {
	for _, content := range []string{"fragment", "example"} {
		h := &Handler{Library: libraryOf(t, versionedSystem("http://x/part", "1", content, "a"), valueSetOf("http://x/all", `{"include":[{"system":"http://x/part"}]}`),
			valueSetOf("http://x/listed", `{"include":[{"system":"http://x/part","concept":[{"code":"b"}]}]}`))}
		for _, path := range []string{"/CodeSystem/$validate-code?url=http://x/part", "/ValueSet/$validate-code?url=http://x/all&system=http://x/part", "/ValueSet/$validate-code?url=http://x/listed&system=http://x/part"} {
			t.Run(content+" "+path, func(t *testing.T) {
				w, _ := call(t, h, "GET", path+"&code=b", "")
				wantText(t, w.Body.String(), `{"name":"result","valueBoolean":true}`, `"severity":"warning"`, "labeled as a")
				if strings.Contains(w.Body.String(), `"severity":"error"`) {
					t.Errorf("got an error in %s", w.Body)
				}
			})
		}
	}
}
