package iso3166_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "iso-3166-1", "urn:iso:std:iso:3166", false)
	terminologytest.WantSource(t, "iso-3166-2", "urn:iso:std:iso:3166:-2", false)
	terminologytest.WantSource(t, "iso-3166-3", "urn:iso:std:iso:3166:-3", false)
	terminologytest.WantCode(t, "urn:iso:std:iso:3166", "2018", "CH", "Switzerland", "ch")
	terminologytest.WantCode(t, "urn:iso:std:iso:3166", "2018", "BOL", "Bolivia, Plurinational State of", "BOX")
	terminologytest.WantCode(t, "urn:iso:std:iso:3166", "2018", "756", "Switzerland", "757")
	terminologytest.WantCode(t, "urn:iso:std:iso:3166", "2018", "QMA", "User-assigned", "QLA")
	terminologytest.WantCode(t, "urn:iso:std:iso:3166", "2018", "999", "User-assigned", "000")
	terminologytest.WantCode(t, "urn:iso:std:iso:3166:-2", "2020", "DE-BY", "Bayern", "DE-XX")
	terminologytest.WantCode(t, "urn:iso:std:iso:3166:-3", "2020", "DDDE", "German Democratic Republic", "DD")
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=urn:iso:std:iso:3166&code=BO&displayLanguage=de":  {`"display","valueString":"Bolivien"`},
		"/CodeSystem/$lookup?system=urn:iso:std:iso:3166&code=NL&displayLanguage=nl":  {`"display","valueString":"Nederland"`},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/iso3166-1-N&filter=switz": {`"total":1`, `"code":"756"`},
	})
}

// TestUserAssigned checks that any display of a user-assigned code is valid, because users define what the code means.
func TestUserAssigned(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$validate-code")
	h := &api.Handler{Library: terminologytest.Core(t)}
	for code, want := range map[string][]string{
		"XY": {`{"name":"result","valueBoolean":true}`, "Display_Name_Not_Fixed_use_Supplement", "Use a supplement to define displays"},
		"CH": {`{"name":"result","valueBoolean":false}`, "Display_Name_for__should_be_one_of__instead_of"},
	} {
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$validate-code?url=urn:iso:std:iso:3166&display=Weird&code="+code, "")
		fixture.WantContains(t, w.Body.String(), want...)
	}
}

// TestUserAssignedNotListed checks that user-assigned codes are valid in every value set that includes the code system, but
// part of an expansion only if they are enumerated or filtered.
func TestUserAssignedNotListed(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
	const iso = `"system":"urn:iso:std:iso:3166"`
	listed := `{` + iso + `,"concept":[{"code":"XY"},{"code":"CH"}]}`
	tests := []struct {
		name, compose, codes string
		total                float64
		isMember             bool
	}{
		{"all", `{"include":[{` + iso + `}]}`, "", 747, true},
		{"by a filter", `{"include":[{` + iso + `,"filter":[{"property":"code","op":"regex","value":"X.|CH"}]}]}`, "CH", 1, true},
		{"imported", `{"include":[{"valueSet":["urn:iso:std:iso:3166?fhir_vs"]}]}`, "", 747, true},
		{"selected", `{"include":[{` + iso + `,"filter":[{"property":"user-assigned","op":"=","value":"true"}]}]}`, "", 1234, true},
		{"listed", `{"include":[` + listed + `]}`, "XY CH", 2, true},
		{"of a value set", `{"include":[{` + iso + `,"valueSet":["http://x/listed"]}]}`, "CH XY", 2, true},
		{"excluded", `{"include":[` + listed + `],"exclude":[{` + iso + `}]}`, "", 0, false},
		{"excluded by import, and all imported", `{"include":[` + listed + `,{"valueSet":["urn:iso:std:iso:3166?fhir_vs"]}],"exclude":[{"valueSet":["urn:iso:std:iso:3166?fhir_vs"]}]}`, "", 0, false},
	}
	h := &api.Handler{Library: terminologytest.Core(t)}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			list := []string{`{"name":"valueSet","resource":` + fixture.ValueSet("http://x/vs", test.compose) + `}`, fixture.TxResource(fixture.ValueSet("http://x/listed", `{"include":[`+listed+`]}`)), ""}
			list[2] = `{"name":"count","valueInteger":2000}`
			w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", fixture.ParametersOf(list...))
			var got terminologytest.Expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Expansion.Total == nil {
				t.Fatalf("%v in %.200s", err, w.Body)
			}
			isListed := slices.Contains(got.Codes(), "XY")
			if float64(*got.Expansion.Total) != test.total || isListed != (test.total == 1234 || strings.Contains(test.codes, "XY")) {
				t.Errorf("got %d codes, XY among them: %t", *got.Expansion.Total, isListed)
			}
			if test.codes != "" {
				terminologytest.WantCodes(t, got, test.codes)
			}
			if isUnclosed := strings.Contains(w.Body.String(), `User-assigned codes of the code system urn:iso:std:iso:3166 are not listed`); test.isMember && isUnclosed == isListed {
				t.Errorf("got %.300s", w.Body)
			}
			list[2] = `{"name":"coding","valueCoding":{` + iso + `,"code":"XY"}}`
			w, _ = terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.ParametersOf(list...))
			fixture.WantContains(t, w.Body.String(), fmt.Sprintf(`{"name":"result","valueBoolean":%t}`, test.isMember))
		})
	}
}

func TestBesidePart(t *testing.T) {
	terminologytest.WantPartialSystem(t, "urn:iso:std:iso:3166", "example", "CH")
	terminologytest.WantPartialSystem(t, "urn:iso:std:iso:3166", "fragment", "CH")
}
