package ucum_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "ucum", "http://unitsofmeasure.org", true)
	terminologytest.WantResponses(t, map[string][]string{
		"/ConceptMap/$translate?system=http://unitsofmeasure.org&targetsystem=http://unitsofmeasure.org&code=mg%2FdLL": {`Error processing unit 'mg/dLL': The unit 'dLL' is unknown at character 4; no translation`},
	})
	if got := string(terminologytest.Core(t).Capabilities().AppendJSON(nil)); !strings.Contains(got, `"code":"2.2","isDefault":true,"compositional":true}`) {
		t.Error("TerminologyCapabilities do not list UCUM as compositional")
	}
}

// TestListedInvalidUnit checks that invalid units in a value set are omitted by $expand.
func TestListedInvalidUnit(t *testing.T) {
	vs := fixture.ValueSet("http://x/doses", `{"include":[{"system":"http://unitsofmeasure.org","concept":[{"code":"mcg"},{"code":"ug"}]}]}`)
	w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.Core(t)}, "POST", "/ValueSet/$expand", fixture.ParametersOf(`{"name":"valueSet","resource":`+vs+`}`))
	fixture.WantContains(t, w.Body.String(), `"total":1`, `"code":"ug"`)
}

// TestEmptyCodeSystem checks that a CodeSystem without concepts, as in HL7's package, does not replace the built-in one.
func TestEmptyCodeSystem(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code")
	h := &api.Handler{Library: terminologytest.Core(t)}
	for _, version := range []string{"2.2", "1"} {
		brought := fixture.TxResource(fixture.VersionedSystem("http://unitsofmeasure.org", version, "not-present", ""))
		w, _ := terminologytest.Call(t, h, "POST", "/CodeSystem/$validate-code", fixture.ParametersOf(`{"name":"url","valueUri":"http://unitsofmeasure.org"}`, `{"name":"code","valueCode":"mg"}`, brought))
		fixture.WantContains(t, w.Body.String(), `{"name":"result","valueBoolean":true}`)
	}
}

func TestBesidePart(t *testing.T) {
	terminologytest.WantPartialSystem(t, "http://unitsofmeasure.org", "example", "mg/dL")
	terminologytest.WantPartialSystem(t, "http://unitsofmeasure.org", "fragment", "mg/dL")
}

// TestValueSetOfUnit checks the value sets that HL7 defines for each unit. They contain the comparable units.
func TestValueSetOfUnit(t *testing.T) {
	terminologytest.WantResponses(t, map[string][]string{
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mm[Hg]":                                                 {`"code":"kPa"`, "valueset-unclosed", `"url":"http://unitsofmeasure.org/vs/mm[Hg]"`},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mg%252FdL":                                              {`"code":"g/L"`},
		"/ValueSet/$validate-code?url=http://unitsofmeasure.org/vs/mg/dL&system=http://unitsofmeasure.org&code=t/L": {`{"name":"result","valueBoolean":true}`},
		"/ValueSet/$validate-code?url=http://unitsofmeasure.org/vs/mg/dL&system=http://unitsofmeasure.org&code=t":   {"has canonical form g, not g.m-3"},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mg/dLL":                                                 {`the unit 'dLL' is unknown at character 4`},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mg%7C1":                                                 {"could not be found"},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/":                                                       {"could not be found"},
	})
}

// TestReasonOfInvalidCode checks that the reason for an invalid unit is a separate issue, worded as by HL7's servers.
func TestReasonOfInvalidCode(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	const issue = `{"severity":"information","code":"code-invalid","details":{"coding":[{"system":"http://hl7.org/fhir/tools/CodeSystem/tx-issue-type","code":"invalid-code"}],` +
		`"text":"Error processing unit 'kgXX': The unit 'kgXX' is unknown at character 1"}`
	for path, has := range map[string]bool{
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=kgXX":                                                      true,
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/ucum-units&system=http://unitsofmeasure.org&code=kgXX":         true,
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/ucum-vitals-common&system=http://unitsofmeasure.org&code=kgXX": true,
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=kg":                                                        false,
	} {
		if !terminologytest.HasFeature(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		if got := w.Body.String(); strings.Contains(got, issue) != has || strings.Contains(got, `"severity":"information"`) != has {
			t.Errorf("%s: got %s", path, got)
		}
	}
}

// TestNameOfUnit checks that the name of a unit in the value set of common units is a valid display.
func TestNameOfUnit(t *testing.T) {
	const name = `{"name":"use","valueCoding":{"system":"http://snomed.info/sct","code":"900000000000013009","display":"Synonym"}},{"name":"value","valueString":"milligram per deciliter"}`
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=http://unitsofmeasure.org&code=mg/dL":                                         {name, `{"name":"display","valueString":"mg/dL"}`, "(milligram) / (deciliter)"},
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=mg/dL&display=milligram%20per%20deciliter": {`{"name":"result","valueBoolean":true}`, `{"name":"display","valueString":"mg/dL"}`},
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=mg/dL&display=gram%20per%20deciliter":      {`{"name":"result","valueBoolean":false}`, "milligram per deciliter"},
		"/CodeSystem/$lookup?system=http://unitsofmeasure.org&code=mg/dL%7Bno%20common%20unit%7D":                 {`{"name":"display","valueString":"mg/dL{no common unit}"}`},
	})
}

// TestCostOfConversion checks that conversions cost more for longer units, such as powers of a long unit.
func TestCostOfConversion(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ConceptMap/$translate")
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, MaxVisitedCodes: 2_000_000})
	if err != nil {
		t.Fatal(err)
	}
	for code, status := range map[string]int{"mg": http.StatusOK, strings.Repeat("[lbf_av]9.", 20) + "m": http.StatusUnprocessableEntity} {
		w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/ConceptMap/$translate?system=http://unitsofmeasure.org&targetsystem=http://unitsofmeasure.org&code="+code, "")
		if w.Code != status {
			t.Errorf("%s: got %d %.200s", code, w.Code, w.Body)
		}
	}
}
