package standard_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// builtIn are the code systems of the standard build, by id.
var builtIn = map[string]string{
	"bcp-13": "urn:ietf:bcp:13", "bcp-47": "urn:ietf:bcp:47", "ucum": "http://unitsofmeasure.org",
	"iso-3166-1": "urn:iso:std:iso:3166", "iso-3166-2": "urn:iso:std:iso:3166:-2", "iso-3166-3": "urn:iso:std:iso:3166:-3",
	"iso-4217": "urn:iso:std:iso:4217", "un-m49": "http://unstats.un.org/unsd/methods/m49/m49.htm", "snomed-gps": "http://snomed.info/sct",
	"time-zones": "https://www.iana.org/time-zones", "usps": "https://www.usps.com/", "cvx": "http://hl7.org/fhir/sid/cvx", "mvx": "http://hl7.org/fhir/sid/mvx",
}

// systemsOf names the code systems of value sets in requests that do not name these themselves.
var systemsOf = map[string][]string{
	"ValueSet/mimetypes": {"urn:ietf:bcp:13"}, "ValueSet/iso3166": {"urn:iso:std:iso:3166"}, "ValueSet/timezones": {"https://www.iana.org/time-zones"},
	"ValueSet/jurisdiction": {"urn:iso:std:iso:3166", "http://unstats.un.org/unsd/methods/m49/m49.htm"}, "ValueSet/ucum": {"http://unitsofmeasure.org"},
}

// isLinked reports whether this build has the operation and the code systems of a request.
func isLinked(request string) bool {
	isMissing := func(system string) bool { return !terminologytest.Has(system) }
	for part, systems := range systemsOf {
		if strings.Contains(request, part) && slices.ContainsFunc(systems, isMissing) {
			return false
		}
	}
	for _, system := range builtIn {
		if strings.Contains(request, system) && isMissing(system) {
			return false
		}
	}
	return terminologytest.Has(request)
}

// What the program knows itself can be read by its id, and a grammar says that it is one.
func TestReadBuiltIn(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	for id, url := range builtIn {
		if !terminologytest.Has(url) {
			continue
		}
		w, got := terminologytest.Call(t, h, "GET", "/CodeSystem/"+id, "")
		if w.Code != http.StatusOK || got["url"] != url || (got["compositional"] == true) != (id == "ucum" || id == "bcp-47") {
			t.Errorf("%s: got %d %.200s", id, w.Code, w.Body)
		}
	}
	if got := string(h.Library.Capabilities().AppendJSON(nil)); terminologytest.Has(builtIn["ucum"]) && !strings.Contains(got, `"code":"2.2","isDefault":true,"compositional":true}`) {
		t.Error("TerminologyCapabilities do not say that UCUM is compositional")
	}
}

// A CodeSystem without concepts, as the terminology package of HL7 has of UCUM, hides nothing.
func TestBuiltInBehindEmpty(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$validate-code", "http://unitsofmeasure.org")
	h := &api.Handler{Library: terminologytest.Core(t)}
	for _, version := range []string{"2.2", "1"} {
		brought := fixture.Brings(fixture.VersionedSystem("http://unitsofmeasure.org", version, "not-present", ""))
		w, _ := terminologytest.Call(t, h, "POST", "/CodeSystem/$validate-code", fixture.Posted(`{"name":"url","valueUri":"http://unitsofmeasure.org"}`, `{"name":"code","valueCode":"mg"}`, brought))
		fixture.WantText(t, w.Body.String(), `{"name":"result","valueBoolean":true}`)
	}
}

// A part of a built-in code system, loaded or sent with a request, does not hide the rest of it, whatever its version.
func TestBuiltInBesidePart(t *testing.T) {
	tests := []struct{ name, system, content, code string }{
		{"example of a grammar", "http://unitsofmeasure.org", "example", "mg/dL"},
		{"fragment of a grammar", "http://unitsofmeasure.org", "fragment", "mg/dL"},
		{"example of languages", "urn:ietf:bcp:47", "example", "de-CH"},
		{"example of a table", "urn:iso:std:iso:3166", "example", "CH"},
		{"fragment of a table", "urn:iso:std:iso:3166", "fragment", "CH"},
		{"example of a fragment", "http://hl7.org/fhir/sid/cvx", "example", "88"},
	}
	for _, test := range tests {
		for _, version := range []string{"2.2", "9999"} {
			t.Run(test.name+" "+version, func(t *testing.T) {
				terminologytest.Needs(t, "/CodeSystem/$validate-code", test.system)
				part := `{"resourceType":"CodeSystem","url":"` + test.system + `","version":"` + version + `","content":"` + test.content + `","concept":[{"code":"no-code"}]}`
				loaded := &api.Handler{Library: loadedWithCore(t, part)}
				for where, asked := range map[string]func(code string) string{
					"loaded": func(code string) string { return validateIn(t, loaded, test.system, code, "") },
					"sent": func(code string) string {
						return validateIn(t, &api.Handler{Library: terminologytest.Core(t)}, test.system, code, part)
					},
				} {
					if got := asked(test.code); !strings.Contains(got, `{"name":"result","valueBoolean":true}`) || strings.Contains(got, `"issues"`) {
						t.Errorf("%s: %s: got %s", where, test.code, got)
					}
					if got := asked("no-code"); strings.Contains(got, `{"name":"result","valueBoolean":true}`) && !strings.Contains(got, "IN_FRAGMENT") {
						t.Errorf("%s: no-code: got %s", where, got)
					}
				}
			})
		}
	}
}

// A complete CodeSystem takes the place of a built-in one, whatever its version; a fragment takes that of a fragment.
func TestBuiltInReplaced(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$validate-code", "http://hl7.org/fhir/sid/cvx")
	for _, version := range []string{"", "2009", "2008", "20260101"} {
		for content, unknown := range map[string]string{"complete": "Unknown_Code_in", "fragment": "UNKNOWN_CODE_IN_FRAGMENT"} {
			t.Run(content+" "+version, func(t *testing.T) {
				newer := `{"resourceType":"CodeSystem","url":"http://hl7.org/fhir/sid/cvx","version":"` + version + `","content":"` + content + `","concept":[{"code":"208"}]}`
				loaded, core := &api.Handler{Library: loadedWithCore(t, newer)}, &api.Handler{Library: terminologytest.Core(t)}
				for code, want := range map[string]string{"208": `{"name":"result","valueBoolean":true}`, "88": unknown} {
					fixture.WantText(t, validateIn(t, loaded, "http://hl7.org/fhir/sid/cvx", code, ""), want)
					fixture.WantText(t, validateIn(t, core, "http://hl7.org/fhir/sid/cvx", code, newer), want)
				}
				terminologytest.WantCodes(t, terminologytest.Expand(t, loaded.Library, "url", "http://hl7.org/fhir/sid/cvx?fhir_vs"), "208")
			})
		}
	}
}

// validateIn validates a code in a code system, and returns the answer. Unless it is empty, a resource is sent along.
func validateIn(t *testing.T, h *api.Handler, system, code, resource string) string {
	t.Helper()
	list := []string{`{"name":"url","valueUri":"` + system + `"}`, `{"name":"code","valueCode":"` + code + `"}`}
	if resource != "" {
		list = append(list, fixture.Brings(resource))
	}
	w, _ := terminologytest.Call(t, h, "POST", "/CodeSystem/$validate-code", fixture.Posted(list...))
	return w.Body.String()
}

// loadedWithCore loads a resource after the built-in definitions.
func loadedWithCore(t *testing.T, resource string) *terminology.Library {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.json")
	fixture.WriteFile(t, file, []byte(resource))
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// HL7 has a value set for each unit: of all that measure the same.
func TestValueSetOfUnit(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	for path, want := range map[string][]string{
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mm[Hg]":                                                 {`"code":"kPa"`, "valueset-unclosed", `"url":"http://unitsofmeasure.org/vs/mm[Hg]"`},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mg%252FdL":                                              {`"code":"g/L"`},
		"/ValueSet/$validate-code?url=http://unitsofmeasure.org/vs/mg/dL&system=http://unitsofmeasure.org&code=t/L": {`{"name":"result","valueBoolean":true}`},
		"/ValueSet/$validate-code?url=http://unitsofmeasure.org/vs/mg/dL&system=http://unitsofmeasure.org&code=t":   {"has canonical form g, not g.m-3"},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mg/dLL":                                                 {`the unit 'dLL' is unknown at character 4`},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/mg%7C1":                                                 {"could not be found"},
		"/ValueSet/$expand?url=http://unitsofmeasure.org/vs/":                                                       {"could not be found"},
	} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantText(t, w.Body.String(), want...)
	}
}

// What is wrong with a request is said in words for people.
func TestBuiltInRefusals(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	for path, want := range map[string]string{
		"/CodeSystem/$lookup?system=urn:ietf:bcp:47&code=de_CH":                                                        `"text":"Unknown code 'de_CH' in the CodeSystem 'urn:ietf:bcp:47'"`,
		"/ValueSet/$expand?url=http://snomed.info/sct?fhir_vs":                                                         "is not here but for the SNOMED CT Global Patient Set",
		"/ConceptMap/$translate?system=http://unitsofmeasure.org&targetsystem=http://unitsofmeasure.org&code=mg%2FdLL": `Error processing unit 'mg/dLL': The unit 'dLL' is unknown at character 4; no translation`,
	} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantText(t, w.Body.String(), want)
	}
}

// Why a unit is invalid is an issue of its own, in the words of HL7's servers, which have none for languages.
func TestReasonOfInvalidCode(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	const issue = `{"severity":"information","code":"code-invalid","details":{"coding":[{"system":"http://hl7.org/fhir/tools/CodeSystem/tx-issue-type","code":"invalid-code"}],` +
		`"text":"Error processing unit 'kgXX': The unit 'kgXX' is unknown at character 1"}`
	for path, has := range map[string]bool{
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=kgXX":                                                      true,
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/ucum-units&system=http://unitsofmeasure.org&code=kgXX":         true,
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/ucum-vitals-common&system=http://unitsofmeasure.org&code=kgXX": true,
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=kg":                                                        false,
		"/CodeSystem/$validate-code?url=urn:ietf:bcp:47&code=de_CH":                                                               false,
	} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		if got := w.Body.String(); strings.Contains(got, issue) != has || strings.Contains(got, `"severity":"information"`) != has {
			t.Errorf("%s: got %s", path, got)
		}
	}
}

// A unit has the name that the value set of common units has for it, which is a valid display.
func TestNameOfUnit(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	const name = `{"name":"use","valueCoding":{"system":"http://snomed.info/sct","code":"900000000000013009","display":"Synonym"}},{"name":"value","valueString":"milligram per deciliter"}`
	for path, want := range map[string][]string{
		"/CodeSystem/$lookup?system=http://unitsofmeasure.org&code=mg/dL":                                         {name, `{"name":"display","valueString":"mg/dL"}`, "(milligram) / (deciliter)"},
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=mg/dL&display=milligram%20per%20deciliter": {`{"name":"result","valueBoolean":true}`, `{"name":"display","valueString":"mg/dL"}`},
		"/CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=mg/dL&display=gram%20per%20deciliter":      {`{"name":"result","valueBoolean":false}`, "milligram per deciliter"},
		"/CodeSystem/$lookup?system=http://unitsofmeasure.org&code=mg/dL%7Bno%20common%20unit%7D":                 {`{"name":"display","valueString":"mg/dL{no common unit}"}`},
	} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantText(t, w.Body.String(), want...)
	}
}

// A conversion costs by how long the units are: powers of a long one take a thousand times as long as mg.
func TestCostOfConversion(t *testing.T) {
	terminologytest.Needs(t, "/ConceptMap/$translate", "http://unitsofmeasure.org")
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, MaxGathered: 2_000_000})
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
