package snomed_test

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

const (
	sct           = "http://snomed.info/sct"
	international = sct + "/900000000000207008"
	swedish       = sct + "/" + snomedtest.SwedishModule
)

// libraryOf loads editions.
func libraryOf(t testing.TB, editions ...snomedtest.Edition) *terminology.Library {
	t.Helper()
	folder := t.TempDir()
	for i, e := range editions {
		if err := e.WriteZip(filepath.Join(folder, string(rune('a'+i))+".zip")); err != nil {
			t.Fatal(err)
		}
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantResponses sends GET requests and checks that each response contains the given texts.
func wantResponses(t *testing.T, l *terminology.Library, wants [][]string) {
	t.Helper()
	for _, want := range wants {
		w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", want[0], "")
		for _, text := range want[1:] {
			if !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: no %s in %.1500s", want[0], text, w.Body)
			}
		}
	}
}

func expand(address string) string {
	return "/ValueSet/$expand?count=2&url=" + url.QueryEscape(address)
}

// TestImplicitValueSets checks the URLs of implicit value sets with the code system, an edition and a version.
func TestImplicitValueSets(t *testing.T) {
	l := libraryOf(t, snomedtest.Edition{Concepts: 100}, snomedtest.Edition{Concepts: 200, Swedish: true}, snomedtest.Edition{Concepts: 50, Swedish: true, Date: "20250101"})
	wantResponses(t, l, [][]string{
		{expand(sct + "?fhir_vs"), `"total":122`, "ALLSNOMEDCT", international + "/version/20260801"},
		{expand(international + "?fhir_vs"), `"total":122`},
		{expand(swedish + "?fhir_vs"), `"total":222`, swedish + "/version/20260801"},
		{expand(swedish + "/version/20250101?fhir_vs"), `"total":72`},
		{expand(swedish + "/version/20240101?fhir_vs"), "could not be found"},
		{expand(sct + "?fhir_vs=isa/410662002"), `"total":4`, `"code":"410662002"`},
		{expand(sct + "?fhir_vs=isa/1"), "could not be found"},
		{expand(sct + "?fhir_vs=isa/404684003|x|"), "could not be found"},
		{expand(sct + "?fhir_vs=isa/404684003 |x|"), "could not be found"},
		{expand(sct + "?fhir_vs=isa/404684003:" + snomedtest.FindingSite + "=404684003"), "could not be found"},
		{expand(sct + "?fhir_vs=refset/" + snomedtest.SimpleRefset + "|x|"), "could not be found"},
		{expand(sct + "?fhir_vs=refset"), `"total":8`},
		{expand(sct + "?fhir_vs=refset/900000000000509007"), `"total":0`},
		{expand(sct + "?fhir_vs=refset/" + snomedtest.SimpleRefset), `"total":10`},
		{expand(swedish + "?fhir_vs=refset/" + snomedtest.SimpleRefset), `"total":20`},
		{expand(sct + "?fhir_vs=refset/404684003"), "could not be found"},
	})
}

// TestFilters checks the filters that only SNOMED CT has.
func TestFilters(t *testing.T) {
	l := libraryOf(t, snomedtest.Edition{Concepts: 100, Swedish: true})
	for name, test := range map[string]struct {
		property, op, value string
		want                string
	}{
		"reference set":          {"concept", "in", snomedtest.SimpleRefset, `"total":10`},
		"list of codes":          {"concept", "in", "404684003,138875005", `"total":2`},
		"unknown reference set":  {"concept", "in", "1234567890", "has no reference set 1234567890"},
		"empty reference set":    {"concept", "in", "900000000000455006", `"total":1`},
		"not in reference set":   {"concept", "not-in", snomedtest.SimpleRefset, `"total":112`},
		"normal form":            {"normalForm", "=", "x", "SNOMED CT has no filter on normalForm"},
		"terse normal form":      {"normalFormTerse", "exists", "true", "SNOMED CT has no filter on normalFormTerse"},
		"no reference sets":      {"refset", "exists", "false", `"total":114`},
		"reference sets?":        {"refset", "exists", "yes", "not true or false"},
		"expressions?":           {"expressions", "=", "maybe", "not true or false"},
		"module":                 {"moduleId", "=", snomedtest.SwedishModule, `"total":10`},
		"inactive":               {"inactive", "=", "true", `"total":8`},
		"concrete value":         {snomedtest.Strength, "=", "45", `"total":1`},
		"attribute":              {snomedtest.FindingSite, "exists", "true", `"valueset-unclosed"`},
		"without expressions":    {"expressions", "=", "false", `"total":122`},
		"historical association": {snomedtest.ReplacedBy, "=", snomedtest.Concept(22), `"code":"` + snomedtest.Concept(23) + `"`},
	} {
		body := `{"resourceType":"Parameters","parameter":[{"name":"count","valueInteger":3},{"name":"valueSet","resource":{"resourceType":"ValueSet","compose":{"include":[` +
			`{"system":"` + sct + `","filter":[{"property":"` + test.property + `","op":"` + test.op + `","value":"` + test.value + `"}]}]}}}]}`
		w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$expand", body)
		if want := strings.Trim(test.want, `"`); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: no %s in %.1500s", name, want, w.Body)
		}
		if open := strings.Contains(w.Body.String(), "valueset-unclosed"); open == (test.property == "expressions") && w.Code == 200 {
			t.Errorf("%s: unclosed %v", name, open)
		}
	}
}

// TestInactive checks which inactive texts and concepts $validate-code reports.
func TestInactive(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/ValueSet/$validate-code")
	l := libraryOf(t, snomedtest.Edition{Concepts: 100})
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/CodeSystem/$lookup?system="+sct+"&code="+snomedtest.Concept(37), "")
	_, rest, _ := strings.Cut(w.Body.String(), `"name":"display","valueString":"`)
	term, _, _ := strings.Cut(rest, `"`)
	validate := func(code, address string) string {
		return "/ValueSet/$validate-code?system=" + sct + "&code=" + code + "&url=" + url.QueryEscape(address)
	}
	wantResponses(t, l, [][]string{
		{"/CodeSystem/$validate-code?url=" + sct + "&code=" + snomedtest.Concept(37) + "&display=" + url.QueryEscape("Former "+term), `{"name":"result","valueBoolean":true}`, "INACTIVE_DISPLAY_FOUND", `one of \"` + term + `\",\"` + term + ` (finding)\"`},
		{validate(snomedtest.Concept(23), sct+"?fhir_vs"), `{"name":"result","valueBoolean":true}`, "INACTIVE_CONCEPT_FOUND"},
	})
	w, _ = terminologytest.Call(t, &api.Handler{Library: l}, "GET", validate(snomedtest.Concept(23), sct+"?fhir_vs=ecl/^ "+snomedtest.ReplacedBy), "")
	if got := w.Body.String(); !strings.Contains(got, `{"name":"result","valueBoolean":true}`) || strings.Contains(got, "INACTIVE") {
		t.Errorf("a constraint selects the concept: %s", got)
	}
}

// TestCodeWithTerm checks that a code with a term is valid without a message about its case.
func TestCodeWithTerm(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code")
	l := libraryOf(t, snomedtest.Edition{Concepts: 100})
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/CodeSystem/$validate-code?url="+sct+"&display=Clinical+finding&code=404684003|x|", "")
	if got := w.Body.String(); !strings.Contains(got, `"normalized-code","valueCode":"404684003"`) || !strings.Contains(got, `"valueBoolean":true`) || strings.Contains(got, "issue") {
		t.Errorf("got %s", got)
	}
}

// TestListedExpressions checks that expressions in a value set are listed beside their focus concept.
func TestListedExpressions(t *testing.T) {
	l := libraryOf(t, snomedtest.Edition{Concepts: 100})
	code, expression := snomedtest.Concept(2), snomedtest.Concept(2)+":"+snomedtest.FindingSite+"="+snomedtest.Concept(3)
	body := `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet","compose":{"include":[{"system":"` + sct + `","concept":[` +
		`{"code":"` + code + `"},{"code":"` + expression + `"},{"code":"` + strings.ReplaceAll(expression, "=", "=1") + `"}]}]}}}]}`
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$expand", body)
	for _, want := range []string{`"total":2`, `"code":"` + expression + `"`, "|:" + snomedtest.FindingSite + "|Finding site|="} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
}

func TestConceptMaps(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ConceptMap/$translate")
	l := libraryOf(t, snomedtest.Edition{Concepts: 100})
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/ConceptMap/$translate?system="+sct+"&code="+snomedtest.Concept(3)+"&url="+url.QueryEscape(sct+"?fhir_cm="+snomedtest.CTV3Map), "")
	if strings.Contains(w.Body.String(), "dependsOn") || strings.Contains(w.Body.String(), "product") {
		t.Errorf("a simple map has no rules or groups: %s", w.Body)
	}
	translate := func(refset, code, more string) string {
		return "/ConceptMap/$translate?system=" + sct + "&code=" + code + "&url=" + url.QueryEscape(sct+"?fhir_cm="+refset) + more
	}
	wantResponses(t, l, [][]string{
		{translate(snomedtest.ReplacedBy, snomedtest.Concept(23), ""), `"equivalent"`, `"code":"` + snomedtest.Concept(22) + `"`, `"valueBoolean":true`},
		{translate(snomedtest.CTV3Map, snomedtest.Concept(3), ""), "X0003", "http://read.info/ctv3"},
		{translate(snomedtest.ICD10Map, snomedtest.Concept(2), ""), "P02.0", "IFA 445518008", "http://snomed.info/field/mapRule", "ALWAYS C02.0", "http://snomed.info/field/mapPriority"},
		{translate(snomedtest.ICD10Map, snomedtest.Concept(4), ""), "E04.0", "B95.0", "http://snomed.info/field/mapGroup"},
		{translate(snomedtest.ICD10Map, snomedtest.Concept(3), ""), `"valueBoolean":false`},
		{translate("1", snomedtest.Concept(3), ""), "is not loaded"},
		{"/ConceptMap/$translate?reverse=true&system=http://hl7.org/fhir/sid/icd-10&code=E04.0&url=" + url.QueryEscape(sct+"?fhir_cm="+snomedtest.ICD10Map), `"code":"` + snomedtest.Concept(4) + `"`},
		{"/ConceptMap/$translate?system=" + sct + "&code=" + snomedtest.Concept(2) + "&url=" + url.QueryEscape(international+"/version/20260801?fhir_cm="+snomedtest.ICD10Map), "P02.0"},
	})
}

// TestConceptMapVersions checks from which edition and version an implicit concept map comes.
func TestConceptMapVersions(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ConceptMap/$translate")
	l := libraryOf(t, snomedtest.Edition{Concepts: 100, Date: "20250801"}, snomedtest.Edition{Concepts: 100}, snomedtest.Edition{Concepts: 100, Swedish: true, Date: "20260531"})
	old, current, sweden := international+"/version/20250801", international+"/version/20260801", swedish+"/version/20260531"
	for _, test := range [][3]string{ // base of the URL, version, version of the map
		{sct, "", current},
		{sct, current, current},
		{sct, old, old},
		{sct, international, current},
		{sct, swedish, sweden},
		{sct, sweden, sweden},
		{international, "", current},
		{international, old, old},
		{old, "", old},
		{swedish, "", sweden},
		{sweden, sweden, sweden},
	} {
		address := "/ConceptMap/$translate?system=" + sct + "&code=" + snomedtest.Concept(2) + "&version=" + test[1] + "&url=" + url.QueryEscape(test[0]+"?fhir_cm="+snomedtest.ICD10Map)
		wantResponses(t, l, [][]string{{address, `"originMap","valueCanonical":"` + test[0] + "?fhir_cm=" + snomedtest.ICD10Map + "|" + test[2] + `"`}})
	}
	translate := "/ConceptMap/$translate?url=" + url.QueryEscape(sct+"?fhir_cm="+snomedtest.ICD10Map)
	wantResponses(t, l, [][]string{
		{translate + "&system=" + sct + "&code=1&version=" + swedish + "/version/20200101", "is not loaded"},
		{translate + "%7C" + url.QueryEscape(old) + "&system=" + sct + "&code=" + snomedtest.Concept(2), "|" + old},
		{translate + "%7C1&system=" + sct + "&code=1", "is not loaded"},
		{translate + "&reverse=true&system=http://hl7.org/fhir/sid/icd-10&version=2019&code=E04.0", "|" + current},
	})
}

// TestOperations checks $lookup, $subsumes and $validate-code, and which version they use.
func TestOperations(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/CodeSystem/$subsumes")
	l := libraryOf(t, snomedtest.Edition{Concepts: 100}, snomedtest.Edition{Concepts: 200, Swedish: true})
	lookup := func(code, more string) string { return "/CodeSystem/$lookup?system=" + sct + "&code=" + code + more }
	wantResponses(t, l, [][]string{
		{lookup("404684003", "&property=*"), `"valueString":"Clinical finding"`, international, "Clinical finding (finding)", "900000000000003001", "sufficientlyDefined", "normalForm", `"parent"`, "138875005"},
		{lookup(snomedtest.Concept(150), ""), "Unknown code"},
		{lookup(snomedtest.Concept(150), "&version="+swedish), swedish + "/version/20260801"},
		{lookup("404684003", "&displayLanguage=sv&version="+swedish), `"name":"display","valueString":"Sjukdom Clinical finding"`},
		{"/CodeSystem/$subsumes?system=" + sct + "&codeA=138875005&codeB=404684003", `"subsumes"`},
		{"/CodeSystem/$subsumes?system=" + sct + "&codeA=404684003:363698007%3D138875005&codeB=404684003", `"subsumed-by"`},
		{"/CodeSystem/$subsumes?system=" + sct + "&codeA=404684003&codeB=138875005:363698007%3D138875005", `"not-subsumed"`},
		{"/CodeSystem/$subsumes?system=" + sct + "&codeA=138875005:363698007%3D404684003&codeB=404684003:363698007%3D404684003", `"subsumes"`},
		{"/CodeSystem/$subsumes?system=" + sct + "&codeA=138875005%2B404684003&codeB=404684003", `"equivalent"`},
		{"/CodeSystem/$subsumes?system=" + sct + "&codeA=404684003|x|&codeB=404684003", `"equivalent"`},
		{"/CodeSystem/$validate-code?url=" + sct + "&code=" + url.QueryEscape(snomedtest.Concept(23)+":363698007="+snomedtest.Concept(2)), "INACTIVE_CONCEPT_FOUND"},
		{expand(sct + "?fhir_vs=ecl/<! 410662002 |Concept model attribute|"), `"total":3`},
		{expand(sct + "?fhir_vs=ecl/%3C!%20410662002"), `"total":3`},
		{expand(sct + "?fhir_vs=ecl/<<"), "Invalid ECL expression"},
		{"/CodeSystem/$validate-code?url=" + sct + "&code=" + snomedtest.Concept(37) + "&display=Former+x", "Wrong Display Name"},
	})
}

// TestLookupProperties checks role groups, which $lookup returns unless an attribute is requested by its code, and alternate
// identifiers.
func TestLookupProperties(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$lookup")
	l := libraryOf(t, snomedtest.Edition{Concepts: 100, Identifiers: true})
	list := func(name, code, value string) string {
		return `{"name":"` + name + `","part":[{"name":"code","valueCode":"` + code + `"},{"name":"value",` + value + `}]}`
	}
	site, strength := list("subproperty", snomedtest.FindingSite, `"valueCode":"`+snomedtest.Concept(4)+`"`), list("subproperty", snomedtest.Strength, `"valueDecimal":45`)
	other := list("subproperty", snomedtest.AssociatedWith, `"valueCode":"`+snomedtest.Concept(1)+`"`)
	groups := `{"name":"property","part":[{"name":"code","valueCode":"609096000"},` + site + "," + other + "," + strength + `]},` +
		`{"name":"property","part":[{"name":"code","valueCode":"609096000"},` + list("subproperty", snomedtest.FindingSite, `"valueCode":"`+snomedtest.Concept(1)+`"`) + `]}`
	single := list("property", snomedtest.FindingSite, `"valueCode":"`+snomedtest.Concept(4)+`"`)
	for _, test := range []struct {
		code, query string
		want        []string
		sites       int // values of the finding site outside of role groups
	}{
		{snomedtest.Concept(45), "property=*", []string{single, groups}, 1},
		{snomedtest.Concept(45), "property=609096000", []string{groups + "]}"}, 0},
		{snomedtest.Concept(45), "property=" + snomedtest.FindingSite, []string{single}, 3},
		{snomedtest.Concept(45), "property=" + snomedtest.FindingSite + "&property=609096000", []string{single, strength}, 3},
		{snomedtest.Concept(7), "property=equivalentConcept", []string{list("property", "equivalentConcept", `"valueCoding":{"system":"http://loinc.org","code":"7-7"}`)}, 0},
	} {
		w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/CodeSystem/$lookup?system="+sct+"&code="+test.code+"&"+test.query, "")
		for _, want := range test.want {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: no %s in %s", test.query, want, w.Body)
			}
		}
		if got := strings.Count(w.Body.String(), `{"name":"property","part":[{"name":"code","valueCode":"`+snomedtest.FindingSite); got != test.sites {
			t.Errorf("%s: %d finding sites outside of groups, want %d", test.query, got, test.sites)
		}
	}
}
