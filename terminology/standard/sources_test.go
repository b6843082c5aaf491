package standard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// The tables that need no licence are here: each with a code, what it is called, and another that is none.
func TestTables(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	for _, tt := range []struct{ system, version, code, display, unknown string }{
		{"urn:ietf:bcp:13", "", "application/pdf", "application/pdf", "aplication/pdf"},
		{"urn:ietf:bcp:13", "", "text/plain;charset=utf-8", "text/plain;charset=utf-8", "text"},
		{"urn:iso:std:iso:3166", "2018", "CH", "Switzerland", "ch"},
		{"urn:iso:std:iso:3166", "2018", "BOL", "Bolivia, Plurinational State of", "BOX"},
		{"urn:iso:std:iso:3166", "2018", "756", "Switzerland", "757"},
		{"urn:iso:std:iso:3166", "2018", "QMA", "User-assigned", "QLA"},
		{"urn:iso:std:iso:3166", "2018", "999", "User-assigned", "000"},
		{"urn:iso:std:iso:3166:-2", "2020", "DE-BY", "Bayern", "DE-XX"},
		{"urn:iso:std:iso:3166:-3", "2020", "DDDE", "German Democratic Republic", "DD"},
		{"urn:iso:std:iso:4217", "2026-01-01", "CHF", "Swiss Franc", "BGN"},
		{"https://www.iana.org/time-zones", "2026d", "US/Eastern", "US/Eastern", "Europe/Bern"},
		{"http://unstats.un.org/unsd/methods/m49/m49.htm", "", "155", "Western Europe", "157"},
		{"https://www.usps.com/", "", "DC", "District of Columbia", "XX"},
		{"http://hl7.org/fhir/sid/cvx", "2009", "88", "influenza, NOS", ""},
		{"http://hl7.org/fhir/sid/mvx", "2009", "MSD", "Merck & Co., Inc.", ""},
		{"http://snomed.info/sct", "gps-20200930", "73211009", "Diabetes mellitus (disorder)", "138875005"},
	} {
		if !isLinked("/CodeSystem/$validate-code?url=" + tt.system) {
			continue
		}
		system := strings.ReplaceAll(tt.system, "&", "%26")
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$validate-code?url="+system+"&code="+strings.ReplaceAll(tt.code, ";", "%3B"), "")
		fixture.WantText(t, w.Body.String(), `{"name":"result","valueBoolean":true}`, `"display","valueString":"`+tt.display+`"`)
		if tt.version != "" {
			fixture.WantText(t, w.Body.String(), `"version","valueString":"`+tt.version+`"`)
		}
		if tt.unknown != "" {
			w, _ = terminologytest.Call(t, h, "GET", "/CodeSystem/$validate-code?url="+system+"&code="+tt.unknown, "")
			fixture.WantText(t, w.Body.String(), `{"name":"result","valueBoolean":false}`)
		}
	}
}

// What a table says of its codes beside their names, and in which languages.
func TestTablesInDetail(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	for path, want := range map[string][]string{
		"/CodeSystem/$lookup?system=urn:iso:std:iso:3166&code=BO&displayLanguage=de":                              {`"display","valueString":"Bolivien"`},
		"/CodeSystem/$lookup?system=urn:iso:std:iso:3166&code=NL&displayLanguage=nl":                              {`"display","valueString":"Nederland"`},
		"/CodeSystem/$lookup?system=urn:iso:std:iso:4217&code=JPY&property=*":                                     {`"minor-units"`, `"valueInteger":0`, `"392"`},
		"/CodeSystem/$lookup?system=https://www.iana.org/time-zones&code=US/Eastern&property=zone":                {`"valueCode":"America/New_York"`},
		"/CodeSystem/$lookup?system=http://unstats.un.org/unsd/methods/m49/m49.htm&code=155&displayLanguage=fr":   {"Europe occidentale"},
		"/CodeSystem/$lookup?system=http://snomed.info/sct&code=73211009":                                         {"SNOMED CT Global Patient Set", "gps-20200930"},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/iso3166-1-N&filter=switz":                             {`"total":1`, `"code":"756"`},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/timezones&count=1":                                    {"Africa/Abidjan"},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/mimetypes&filter=pdf":                                 {`"code":"application/pdf"`, "valueset-unclosed", "'urn:ietf:bcp:13' has a grammar"},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/jurisdiction&count=0":                                 {`"total":`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/mimetypes&system=urn:ietf:bcp:13&code=x-a/b":   {`{"name":"result","valueBoolean":true}`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/mimetypes&code=x-a/b&inferSystem=true":         {`{"name":"result","valueBoolean":true}`, `"valueUri":"urn:ietf:bcp:13"`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/mimetypes&system=urn:ietf:bcp:13&code=texts/b": {`{"name":"result","valueBoolean":false}`},
	} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantText(t, w.Body.String(), want...)
	}
}

// The Global Patient Set says what a code is, and nothing that takes the hierarchy or all of SNOMED CT.
func TestStandIn(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	const sct = "http://snomed.info/sct"
	for path, want := range map[string][]string{
		"/CodeSystem/$subsumes?system=" + sct + "&codeA=73211009&codeB=46635009":                                                          {"could not be found"},
		"/CodeSystem/$lookup?system=" + sct + "&code=138875005":                                                                           {"could not be found"},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/condition-code":                                                               {"is not here"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/condition-code&system=" + sct + "&code=73211009":                       {"could not be found", `{"name":"result","valueBoolean":false}`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/immunization-target-disease&system=" + sct + "&code=14189004":          {`"version","valueString":"gps-`, `{"name":"result","valueBoolean":true}`},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&display=Diabetes":                                                       {`{"name":"result","valueBoolean":true}`, "was not checked: only the name 'Diabetes mellitus (disorder)' is known here"},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&system-version=" + sct + "%7Chttp://snomed.info/sct/731000124108":       {`{"name":"result","valueBoolean":false}`, "could not be found"},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&system-version=" + sct + "%7Chttp://snomed.info/sct/900000000000207008": {`{"name":"result","valueBoolean":true}`, "gps-20200930"},
		"/CodeSystem/$validate-code?url=" + sct + "&code=73211009&version=http://snomed.info/sct/900000000000207008/version/20250901":     {`{"name":"result","valueBoolean":false}`},
	} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantText(t, w.Body.String(), want...)
	}
	w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$validate-code?url="+sct+"&code=73211009&display=diabetes+mellitus", "")
	if strings.Contains(w.Body.String(), "not checked") {
		t.Errorf("the name without what is in brackets: %s", w.Body)
	}
}

// An edition takes the place of the Global Patient Set, and a part of one does not.
func TestStandInBesideEdition(t *testing.T) {
	const sct = "http://snomed.info/sct"
	for content, want := range map[string]string{"fragment": "gps-20200930", "complete": "Unknown code"} {
		edition := filepath.Join(t.TempDir(), "sct.json")
		fixture.WriteFile(t, edition, []byte(`{"resourceType":"CodeSystem","url":"`+sct+`","version":"own","content":"`+content+`","concept":[{"code":"1","display":"Own"}]}`))
		own, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{edition}})
		if err != nil {
			t.Fatal(err)
		}
		h := &api.Handler{Library: own}
		for path, want := range map[string]string{
			"/CodeSystem/$lookup?system=" + sct + "&code=73211009":     want,
			"/CodeSystem/$validate-code?url=" + sct + "&code=73211009": want,
			"/CodeSystem/$lookup?system=" + sct + "&code=1":            `"version","valueString":"own"`,
			"/CodeSystem/$validate-code?url=" + sct + "&code=1":        `"version","valueString":"own"`,
			"/ValueSet/$expand?url=" + sct + "?fhir_vs":                `"total":1`,
		} {
			if !isLinked(path) {
				continue
			}
			w, _ := terminologytest.Call(t, h, "GET", path, "")
			if strings.Contains(w.Body.String(), "IN_FRAGMENT") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, %s: want %s in %s", content, path, want, w.Body)
			}
		}
	}
}

// Anyone may say what a user-assigned code is: another display is no error.
func TestUserAssigned(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$validate-code", "urn:iso:std:iso:3166")
	h := &api.Handler{Library: terminologytest.Core(t)}
	for code, want := range map[string][]string{
		"XY": {`{"name":"result","valueBoolean":true}`, "Display_Name_Not_Fixed_use_Supplement", "Use a supplement to define displays"},
		"CH": {`{"name":"result","valueBoolean":false}`, "Display_Name_for__should_be_one_of__instead_of"},
	} {
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$validate-code?url=urn:iso:std:iso:3166&display=Weird&code="+code, "")
		fixture.WantText(t, w.Body.String(), want...)
	}
}

// User-assigned codes are not listed unless a value set lists or selects them, but every value set that has them validates them.
func TestUserAssignedNotListed(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$validate-code", "urn:iso:std:iso:3166")
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
			list := []string{`{"name":"valueSet","resource":` + fixture.ValueSet("http://x/vs", test.compose) + `}`, fixture.Brings(fixture.ValueSet("http://x/listed", `{"include":[`+listed+`]}`)), ""}
			list[2] = `{"name":"count","valueInteger":2000}`
			w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", fixture.Posted(list...))
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
			w, _ = terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.Posted(list...))
			fixture.WantText(t, w.Body.String(), fmt.Sprintf(`{"name":"result","valueBoolean":%t}`, test.isMember))
		})
	}
}

// Where only a part of a code system is here, other servers are asked for the rest, and for more than what stands in for it.
func TestPartsAskOthers(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t), Others: true}
	for path, asks := range map[string]bool{
		"/CodeSystem/$validate-code?url=http://hl7.org/fhir/sid/cvx&code=208":       true,
		"/CodeSystem/$validate-code?url=http://hl7.org/fhir/sid/cvx&code=88":        false,
		"/CodeSystem/$lookup?system=http://hl7.org/fhir/sid/cvx&code=208":           true,
		"/CodeSystem/$lookup?system=http://snomed.info/sct&code=73211009":           true,
		"/CodeSystem/$validate-code?url=http://snomed.info/sct&code=73211009":       true,
		"/CodeSystem/$validate-code?url=urn:ietf:bcp:13&code=application/none.such": false,
	} {
		if !isLinked(path) {
			continue
		}
		err := terminologytest.Answer(h, httptest.NewRecorder(), httptest.NewRequest("GET", "/fhir/R4"+path, nil))
		if failed, ok := errors.AsType[*outcome.Error](err); ok && len(failed.Missing) > 0 != asks || !ok && asks {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// The metadata of a source is read at start and declares the properties of its table.
func TestSources(t *testing.T) {
	systems := &terminologytest.Core(t).Definitions().Systems
	for _, s := range codesystem.Registered() {
		cs := systems.CodeSystems[systems.CodeSystem(s.URL, s.Version)]
		var members string
		for _, m := range cs.Rest {
			members += string(m.Value)
		}
		if list := cs.Concepts.List; list != nil && strings.Contains(string(list.AppendConcepts(nil)), ` "`) {
			t.Errorf("%s: a text ends with a space", s.URL)
		}
		for _, p := range cs.Concepts.Filters.Properties() {
			if cs.Concepts.List != nil && !strings.Contains(members, `"code":"`+p.Code+`"`) {
				t.Errorf("%s: Members does not declare the property %s", s.URL, p.Code)
			}
		}
	}
}

// The code systems of the standard build complete twelve value sets of R4, one of which lists the common codes of a grammar.
func TestCoreValueSetsExpand(t *testing.T) {
	for _, system := range builtIn {
		terminologytest.Needs(t, system)
	}
	l, expanded := terminologytest.Core(t), 0
	x := compose.Expander{Library: l.Definitions(), Cache: l.CodeLists(), Rules: new(compose.Rules)}
	for _, vs := range l.Definitions().ValueSets.List {
		if _, err := x.Codes(vs); err == nil {
			expanded++
		}
	}
	if expanded != 1234 {
		t.Errorf("%d value sets expand, want 1234", expanded)
	}
}
