package snomedgps_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "snomed-gps", "http://snomed.info/sct", false)
	terminologytest.WantCode(t, "http://snomed.info/sct", "gps-20200930", "73211009", "Diabetes mellitus (disorder)", "138875005")
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=http://snomed.info/sct&code=73211009": {"SNOMED CT Global Patient Set", "gps-20200930"},
		"/ValueSet/$expand?url=http://snomed.info/sct?fhir_vs":            {"no edition of code system http://snomed.info/sct is loaded; the built-in SNOMED CT Global Patient Set"},
	})
	terminologytest.WantMissing(t, map[string]bool{
		"/CodeSystem/$lookup?system=http://snomed.info/sct&code=73211009":     true,
		"/CodeSystem/$validate-code?url=http://snomed.info/sct&code=73211009": true,
	})
}

// TestStandIn checks that only lookups that need neither the hierarchy nor all of SNOMED CT are supported.
func TestStandIn(t *testing.T) {
	const sct = "http://snomed.info/sct"
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$subsumes?system=" + sct + "&codeA=73211009&codeB=46635009":                                                          {"could not be found"},
		"/CodeSystem/$lookup?system=" + sct + "&code=138875005":                                                                           {"could not be found"},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/condition-code":                                                               {"no edition of code system http://snomed.info/sct is loaded"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/condition-code&system=" + sct + "&code=73211009":                       {"could not be found", `{"name":"result","valueBoolean":false}`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/immunization-target-disease&system=" + sct + "&code=14189004":          {`"version","valueString":"gps-`, `{"name":"result","valueBoolean":true}`},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&display=Diabetes":                                                       {`{"name":"result","valueBoolean":true}`, "was not checked: only the name 'Diabetes mellitus (disorder)' is available"},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&system-version=" + sct + "%7Chttp://snomed.info/sct/731000124108":       {`{"name":"result","valueBoolean":false}`, "could not be found"},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&system-version=" + sct + "%7Chttp://snomed.info/sct/900000000000207008": {`{"name":"result","valueBoolean":true}`, "gps-20200930"},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&version=http://snomed.info/sct/900000000000207008/version/20250901":     {`{"name":"result","valueBoolean":false}`},
	})
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code")
	w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.Core(t)}, "GET", "/CodeSystem/$validate-code?url="+sct+"&code=73211009&display=diabetes+mellitus", "")
	if strings.Contains(w.Body.String(), "not checked") {
		t.Errorf("the name without the semantic tag: %s", w.Body)
	}
}

// TestStandInBesideEdition checks that a complete edition replaces the Global Patient Set, but a fragment does not.
func TestStandInBesideEdition(t *testing.T) {
	const sct = "http://snomed.info/sct"
	for content, want := range map[string]string{"fragment": "gps-20200930", "complete": "Unknown code"} {
		own := terminologytest.CoreWith(t, `{"resourceType":"CodeSystem","url":"`+sct+`","version":"own","content":"`+content+`","concept":[{"code":"1","display":"Own"}]}`)
		h := &api.Handler{Library: own}
		for path, want := range map[string]string{
			"/CodeSystem/$lookup?system=" + sct + "&code=73211009":     want,
			"/CodeSystem/$validate-code?url=" + sct + "&code=73211009": want,
			"/CodeSystem/$lookup?system=" + sct + "&code=1":            `"version","valueString":"own"`,
			"/CodeSystem/$validate-code?url=" + sct + "&code=1":        `"version","valueString":"own"`,
			"/ValueSet/$expand?url=" + sct + "?fhir_vs":                `"total":1`,
		} {
			if !terminologytest.HasFeature(path) {
				continue
			}
			w, _ := terminologytest.Call(t, h, "GET", path, "")
			if strings.Contains(w.Body.String(), "IN_FRAGMENT") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, %s: want %s in %s", content, path, want, w.Body)
			}
		}
	}
}
