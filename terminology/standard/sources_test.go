package standard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
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

func TestLookupOfGrammar(t *testing.T) {
	terminologytest.Needs(t, terminologytest.Languages, "/CodeSystem/$lookup", "/CodeSystem/$subsumes")
	h := &api.Handler{Library: terminologytest.Core(t)}
	w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$lookup?system=urn:ietf:bcp:47&code=de-CH&property=language&property=region&property=canonical", "")
	property := func(name, value string) string {
		return `"part":[{"name":"code","valueCode":"` + name + `"},{"name":"value","valueCode":"` + value + `"}]`
	}
	fixture.WantText(t, w.Body.String(), `"display","valueString":"German (Switzerland)"`, property("language", "de"), property("region", "CH"), property("canonical", "de-CH"))
	if n := strings.Count(w.Body.String(), `"name":"designation"`); n != 6 {
		t.Errorf("%d designations in %s", n, w.Body)
	}
	for _, test := range [][3]string{{"de-CH", "de-CH", "equivalent"}, {"de", "de-CH", "not-subsumed"}} {
		w, _ := terminologytest.Call(t, h, "GET", "/CodeSystem/$subsumes?system=urn:ietf:bcp:47&codeA="+test[0]+"&codeB="+test[1], "")
		fixture.WantText(t, w.Body.String(), `"valueCode":"`+test[2]+`"`)
	}
}

// bare is a code system of one concept that has no optional interface but List.
type bare struct{}

func (bare) Len() int { return 1 }

func (bare) AppendConcepts(dst []byte) []byte { return dst }

func (bare) Code(codesystem.Concept) []byte { return []byte("one") }

func (bare) Language() string { return "" }

func (bare) Locate(code []byte) (codesystem.Concept, bool) {
	return codesystem.At(0), string(code) == "one"
}

func (b bare) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return b.Code(c), []byte("First"), 0
}

func (bare) AppendTexts(dst []codesystem.Text, _ codesystem.Concept) []codesystem.Text {
	return append(dst, codesystem.Text{Value: []byte("First"), Display: true})
}

func (bare) AppendValues(dst []codesystem.Value, _ codesystem.Concept) []codesystem.Value { return dst }

// TestBareCodeSystem asks each operation about a code system that has only what it must.
func TestBareCodeSystem(t *testing.T) {
	l := terminologytest.Library(t, fixture.ValueSet("http://x/is-a", `{"include":[{"system":"http://x/bare","filter":[{"property":"concept","op":"is-a","value":"one"}]}]}`))
	l.Definitions().Systems.AddCodeSystem(&definitions.CodeSystem{Definition: definitions.Definition{URL: "http://x/bare"}, Concepts: codesystem.Of(bare{}), Content: definitions.ContentComplete})
	for _, url := range []string{"http://x/bare?fhir_vs", "http://x/is-a"} {
		for filter, want := range map[string]string{"": "one=First", "fi": "one=First", "second": ""} {
			x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: compose.ValueSetRef{URL: url}, Page: expansion.Page{Filter: filter}})
			if err != nil {
				t.Fatal(err)
			}
			if got := terminologytest.Shown(x.Codes()); got != want {
				t.Errorf("%s, %q: got %s, want %s", url, filter, got, want)
			}
		}
	}
	h := &api.Handler{Library: l}
	for path, want := range map[string]string{
		"/ValueSet/$validate-code?url=http://x/bare?fhir_vs&system=http://x/bare&code=one": `{"name":"result","valueBoolean":true}`,
		"/ValueSet/$validate-code?url=http://x/is-a&system=http://x/bare&code=one":         `{"name":"result","valueBoolean":true}`,
		"/CodeSystem/$lookup?system=http://x/bare&code=one&property=*":                     `"valueString":"First"`,
		"/CodeSystem/$subsumes?system=http://x/bare&codeA=one&codeB=one":                   `"valueCode":"equivalent"`,
	} {
		t.Run(path, func(t *testing.T) {
			terminologytest.Needs(t, path)
			w, _ := terminologytest.Call(t, h, "GET", path, "")
			fixture.WantText(t, w.Body.String(), want)
		})
	}
}

// TestAskSource asks the other operations about a grammar and a table, by GET and POST, each with what the answer must have.
func TestAskSource(t *testing.T) {
	l := terminologytest.SourceLibrary(t, fixture.ValueSet("http://x/durations", `{"include":[{"system":"http://x/measures","filter":[{"property":"base","op":"in","value":"1min,2s"}]},{"system":"http://x/shapes"}]}`))
	target := fixture.ValueSet("http://x/target", `{"include":[{"system":"http://x/measures","concept":[{"code":"2m"},{"code":"4s"}]}]}`)
	h := &api.Handler{Library: l}
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&system=http://x/measures&code=7min", "", `result=true|display="7 minutes"|version="2"`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&system=http://x/measures&code=7m", "", `result=false|message="Code 7m is not in 1min,2s; The provided code 'http://x/measures#7m' was not found`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&code=7min&inferSystem=true", "", `result=true|system="http://x/measures"`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&code=circle&inferSystem=true", "", `result=true|system="http://x/shapes"`},
		{"GET", "/ValueSet/$validate-code?url=http://x/durations&code=7x&inferSystem=true", "", `result=false|value set expansion has no matches`},
		{"GET", "/CodeSystem/$validate-code?url=http://x/measures&code=7x", "", `message="Unknown code '7x' in the CodeSystem 'http://x/measures' version '2'"`},
		{"GET", "/CodeSystem/$lookup?system=http://x/measures&code=7m&property=*", "", `version="2"|"valueCode":"base"|"valueString":"© of measures"`},
		{"GET", "/CodeSystem/$lookup?system=http://x/shapes&code=triangle&property=copyright", "", `"Dreieck"|"valueString":"© of shapes"`},
		{"GET", "/CodeSystem/$subsumes?system=http://x/shapes&codeA=polygon&codeB=square", "", `outcome="subsumes"`},
		{"GET", "/CodeSystem/$subsumes?system=http://x/measures&codeA=1m&codeB=1m", "", `outcome="equivalent"`},
		{"GET", "/CodeSystem/$subsumes?system=http://x/measures&codeA=1m&codeB=100cm", "", `outcome="not-subsumed"`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m&targetsystem=http://x/measures", "",
			`result=true|{"name":"equivalence","valueCode":"equivalent"},{"name":"concept","valueCoding":{"code":"1m"|"code":"100cm"|"relatedto"},{"name":"concept","valueCoding":{"code":"20cm"|#conversion-factor"},{"name":"concept","valueCoding":{"code":"5"}}`},
		{"POST", "/ConceptMap/$translate", fixture.Posted(`{"name":"coding","valueCoding":{"system":"http://x/measures","code":"1m"}}`, `{"name":"target","valueUri":"http://x/target"}`, fixture.Brings(target)),
			`result=true|"code":"2m"|"code":"0.5"`},
		{"POST", "/ConceptMap/$translate", fixture.Posted(`{"name":"coding","valueCoding":{"system":"http://x/measures","code":"1m"}}`, `{"name":"target","valueUri":"http://x/target"}`, `{"name":"reverse","valueBoolean":true}`, fixture.Brings(target)),
			`"code":"2m"|"code":"2"`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m&targetsystem=http://x/shapes", "", `result=false`},
		{"GET", "/ConceptMap/$translate?system=http://x/measures&code=1m", "", `result=false`},
		{"GET", "/ConceptMap/$translate?system=http://x/shapes&code=square&targetsystem=http://x/shapes", "", `result=false`},
	} {
		if !isLinked(test.path) {
			continue
		}
		w, answer := terminologytest.Call(t, h, test.method, test.path, test.body)
		got := short(answer)
		for part := range strings.SplitSeq(test.want, "|") {
			if !strings.Contains(got, part) && !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), part) {
				t.Errorf("%s %s%s: %d\n got %s\nwant %s", test.method, test.path, test.body, w.Code, got, part)
			}
		}
	}
}

// short is an answer of Parameters in short: name=value.
func short(answer map[string]any) string {
	var list []string
	parameters, _ := answer["parameter"].([]any)
	for _, p := range parameters {
		m := p.(map[string]any)
		for name, value := range m {
			if strings.HasPrefix(name, "value") || name == "part" {
				text, _ := json.Marshal(value)
				list = append(list, fmt.Sprint(m["name"], "=", string(text)))
			}
		}
	}
	return strings.Join(list, " ")
}

// An invalid code is rejected with the reason in addition to the usual message.
func TestRefusal(t *testing.T) {
	h := &api.Handler{Library: terminologytest.SourceLibrary(t)}
	for _, path := range []string{"/CodeSystem/$validate-code?url=http://x/measures&code=7x", "/CodeSystem/$lookup?system=http://x/measures&code=7x"} {
		if !isLinked(path) {
			continue
		}
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		for _, part := range []string{`"text":"Unknown code '7x' in the CodeSystem 'http://x/measures' version '2'"`, `"diagnostics":"Unknown code '7x' in the CodeSystem 'http://x/measures' version '2': no unit at column 2"`} {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: got %s, want %s", path, w.Body, part)
			}
		}
	}
}

// A table that the program brings along is not read by what asks for none of its concepts.
func TestSourceStaysUnread(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$lookup")
	l, err := terminology.Load(t.Context(), definitions.Options{Sources: terminologytest.Sources(t, []byte("not readable"))})
	if err != nil {
		t.Fatal(err)
	}
	h := &api.Handler{Library: l}
	l.Capabilities().AppendJSON(nil)
	for _, path := range []string{"/CodeSystem?_summary=true", "/CodeSystem?title=all&_elements=url", "/CodeSystem/$lookup?system=http://x/measures&code=7m"} {
		if w, _ := terminologytest.Call(t, h, "GET", path, ""); w.Code != http.StatusOK {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	if _, err := l.With([]byte(fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/shapes"}]}`))); err != nil {
		t.Error(err)
	}
}

func TestValidateCodeOfGrammar(t *testing.T) {
	terminologytest.Needs(t, terminologytest.Languages, "/ValueSet/$validate-code")
	h := &api.Handler{Library: terminologytest.LanguageLibrary(t)}
	tests := []struct {
		name, url, code, display string
		want                     string
	}{
		{"listed", "http://x/swiss", "de-CH", "German (Switzerland)", "true German (Switzerland)"},
		{"listed with a display", "http://x/swiss", "fr-CH", "", "true Swiss French"},
		{"listed in another case", "http://x/swiss", "fr-ch", "", "false "},
		{"not listed", "http://x/swiss", "de", "", "false German"},
		{"wrong display", "http://x/swiss", "it", "Italic", "false Italian"},
		{"filter holds", "http://x/region", "de-AT", "", "true German (Austria)"},
		{"filter does not hold", "http://x/region", "de-Latn", "", "false German (Latin)"},
		{"all", terminologytest.Languages + "?fhir_vs", "nds", "", "true Low German"},
		{"is-a itself", "http://x/de", "de", "", "true German"},
		{"is-a another", "http://x/de", "de-CH", "", "false German (Switzerland)"},
		{"no such tag, but listed", "http://x/swiss", "nonsense", "", "false "},
		{"no such tag", terminologytest.Languages + "?fhir_vs", "de_CH", "", "false "},
		{"code system", "", "de-CH", "", "true German (Switzerland)"},
		{"code system, in another case", "", "de-ch", "", "false "},
		{"code system, no such tag", "", "xx-yy", "", "false "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			query := terminologytest.Query("url", test.url, "system", terminologytest.Languages, "code", test.code, "display", test.display)
			path := "/ValueSet/$validate-code?"
			if test.url == "" {
				query = terminologytest.Query("url", terminologytest.Languages, "code", test.code, "display", test.display)
				path = "/CodeSystem/$validate-code?"
			}
			w, _ := terminologytest.Call(t, h, "GET", path+query, "")
			var answer struct {
				Parameter []struct {
					Name         string
					ValueBoolean bool
					ValueString  string
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			valid, display := false, ""
			for _, p := range answer.Parameter {
				switch p.Name {
				case "result":
					valid = p.ValueBoolean
				case "display":
					display = p.ValueString
				}
			}
			if got := fmt.Sprint(valid, " ", display); got != test.want {
				t.Errorf("got %s, want %s: %s", got, test.want, w.Body)
			}
		})
	}
}
