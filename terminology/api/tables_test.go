package api

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
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// The tables that need no licence are here: each with a code, what it is called, and another that is none.
func TestTables(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
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
		system := strings.ReplaceAll(tt.system, "&", "%26")
		w, _ := call(t, h, "GET", "/CodeSystem/$validate-code?url="+system+"&code="+strings.ReplaceAll(tt.code, ";", "%3B"), "")
		wantText(t, w.Body.String(), `{"name":"result","valueBoolean":true}`, `"display","valueString":"`+tt.display+`"`)
		if tt.version != "" {
			wantText(t, w.Body.String(), `"version","valueString":"`+tt.version+`"`)
		}
		if tt.unknown != "" {
			w, _ = call(t, h, "GET", "/CodeSystem/$validate-code?url="+system+"&code="+tt.unknown, "")
			wantText(t, w.Body.String(), `{"name":"result","valueBoolean":false}`)
		}
	}
}

// What a table says of its codes beside their names, and in which languages.
func TestTablesInDetail(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
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
		w, _ := call(t, h, "GET", path, "")
		wantText(t, w.Body.String(), want...)
	}
}

// The Global Patient Set says what a code is, and nothing that takes the hierarchy or all of SNOMED CT.
func TestStandIn(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
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
		w, _ := call(t, h, "GET", path, "")
		wantText(t, w.Body.String(), want...)
	}
	w, _ := call(t, h, "GET", "/CodeSystem/$validate-code?url="+sct+"&code=73211009&display=diabetes+mellitus", "")
	if strings.Contains(w.Body.String(), "not checked") {
		t.Errorf("the name without what is in brackets: %s", w.Body)
	}
}

// An edition takes the place of the Global Patient Set, and a part of one does not.
func TestStandInBesideEdition(t *testing.T) {
	const sct = "http://snomed.info/sct"
	for content, want := range map[string]string{"fragment": "gps-20200930", "complete": "Unknown code"} {
		edition := filepath.Join(t.TempDir(), "sct.json")
		writeFile(t, edition, []byte(`{"resourceType":"CodeSystem","url":"`+sct+`","version":"own","content":"`+content+`","concept":[{"code":"1","display":"Own"}]}`))
		own, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{edition}})
		if err != nil {
			t.Fatal(err)
		}
		h := &Handler{Library: own}
		for path, want := range map[string]string{
			"/CodeSystem/$lookup?system=" + sct + "&code=73211009":     want,
			"/CodeSystem/$validate-code?url=" + sct + "&code=73211009": want,
			"/CodeSystem/$lookup?system=" + sct + "&code=1":            `"version","valueString":"own"`,
			"/CodeSystem/$validate-code?url=" + sct + "&code=1":        `"version","valueString":"own"`,
			"/ValueSet/$expand?url=" + sct + "?fhir_vs":                `"total":1`,
		} {
			w, _ := call(t, h, "GET", path, "")
			if strings.Contains(w.Body.String(), "IN_FRAGMENT") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, %s: want %s in %s", content, path, want, w.Body)
			}
		}
	}
}

// Anyone may say what a user-assigned code is: another display is no error.
func TestUserAssigned(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
	for code, want := range map[string][]string{
		"XY": {`{"name":"result","valueBoolean":true}`, "Display_Name_Not_Fixed_use_Supplement", "Use a supplement to define displays"},
		"CH": {`{"name":"result","valueBoolean":false}`, "Display_Name_for__should_be_one_of__instead_of"},
	} {
		w, _ := call(t, h, "GET", "/CodeSystem/$validate-code?url=urn:iso:std:iso:3166&display=Weird&code="+code, "")
		wantText(t, w.Body.String(), want...)
	}
}

// User-assigned codes are not listed unless a value set lists or selects them, but every value set that has them validates them.
func TestUserAssignedNotListed(t *testing.T) {
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
	h := &Handler{Library: coreLibrary(t)}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			list := []string{`{"name":"valueSet","resource":` + valueSetOf("http://x/vs", test.compose) + `}`, brings(valueSetOf("http://x/listed", `{"include":[`+listed+`]}`)), ""}
			list[2] = `{"name":"count","valueInteger":2000}`
			w, _ := call(t, h, "POST", "/ValueSet/$expand", posted(list...))
			var got expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Expansion.Total == nil {
				t.Fatalf("%v in %.200s", err, w.Body)
			}
			isListed := slices.Contains(got.codes(), "XY")
			if float64(*got.Expansion.Total) != test.total || isListed != (test.total == 1234 || strings.Contains(test.codes, "XY")) {
				t.Errorf("got %d codes, XY among them: %t", *got.Expansion.Total, isListed)
			}
			if test.codes != "" {
				wantCodes(t, got, test.codes)
			}
			if isUnclosed := strings.Contains(w.Body.String(), `User-assigned codes of the code system urn:iso:std:iso:3166 are not listed`); test.isMember && isUnclosed == isListed {
				t.Errorf("got %.300s", w.Body)
			}
			list[2] = `{"name":"coding","valueCoding":{` + iso + `,"code":"XY"}}`
			w, _ = call(t, h, "POST", "/ValueSet/$validate-code", posted(list...))
			wantText(t, w.Body.String(), fmt.Sprintf(`{"name":"result","valueBoolean":%t}`, test.isMember))
		})
	}
}

// Media types that are not registered count in value sets too: in those that list them, and in what is made of them.
func TestUnregisteredMediaTypes(t *testing.T) {
	const list = `{"system":"urn:ietf:bcp:13","concept":[{"code":"application/vnd.own"},{"code":"text/plain"},{"code":"texts/plain"}]}`
	vs := func(name, compose string) string {
		return `{"resourceType":"ValueSet","url":"http://x/` + name + `","status":"active","compose":` + compose + `}`
	}
	resources := []string{
		vs("list", `{"include":[`+list+`]}`), vs("bounded", `{"include":[{"system":"urn:ietf:bcp:13","valueSet":["http://x/list"]}]}`),
		vs("nothing", `{"include":[`+list+`],"exclude":[{"system":"urn:ietf:bcp:13"}]}`), vs("others", `{"include":[`+list+`],"exclude":[{"valueSet":["http://hl7.org/fhir/ValueSet/mimetypes"]}]}`),
	}
	h := &Handler{Library: coreLibrary(t)}
	for name, want := range map[string][]string{"list": {"application/vnd.own", "text/plain"}, "bounded": {"application/vnd.own", "text/plain"}, "nothing": nil, "others": nil} {
		body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/` + name + `"}`
		for _, r := range resources {
			body += `,{"name":"tx-resource","resource":` + r + `}`
		}
		w, _ := call(t, h, "POST", "/ValueSet/$expand", body+"]}")
		var got struct {
			Expansion struct {
				Extension []any
				Contains  []struct{ Code string }
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var codes []string
		for _, c := range got.Expansion.Contains {
			codes = append(codes, c.Code)
		}
		if !slices.Equal(codes, want) || len(got.Expansion.Extension) > 0 {
			t.Errorf("%s: got %s, want %v", name, w.Body, want)
		}
	}
}

// Where only a part of a code system is here, other servers are asked for the rest, and for more than what stands in for it.
func TestPartsAskOthers(t *testing.T) {
	h := &Handler{Library: coreLibrary(t), Others: true}
	for path, asks := range map[string]bool{
		"/CodeSystem/$validate-code?url=http://hl7.org/fhir/sid/cvx&code=208":       true,
		"/CodeSystem/$validate-code?url=http://hl7.org/fhir/sid/cvx&code=88":        false,
		"/CodeSystem/$lookup?system=http://hl7.org/fhir/sid/cvx&code=208":           true,
		"/CodeSystem/$lookup?system=http://snomed.info/sct&code=73211009":           true,
		"/CodeSystem/$validate-code?url=http://snomed.info/sct&code=73211009":       true,
		"/CodeSystem/$validate-code?url=urn:ietf:bcp:13&code=application/none.such": false,
	} {
		answer := h.ValidateCodeInSystem
		if strings.Contains(path, "$lookup") {
			answer = h.Lookup
		}
		err := answer(httptest.NewRecorder(), httptest.NewRequest("GET", "/fhir/R4"+path, nil))
		if failed, ok := errors.AsType[*outcome.Error](err); ok && len(failed.Missing) > 0 != asks || !ok && asks {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
