package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

// withParameters returns a value set of all colours that has parameters for its own expansion: names and values in turn.
func withParameters(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fmt.Sprintf(`{"url":"http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter",
			"extension":[{"url":"name","valueCode":%q},{"url":"value","valueString":%q}]}`, pairs[i], pairs[i+1]))
	}
	return `{"resourceType":"ValueSet","url":"http://x/own","status":"active","compose":{"extension":[` + strings.Join(list, ",") +
		`],"include":[{"system":"http://x/colours"}]}}`
}

// What a request has as well is not even read in the value set, and a blank parameter counts as one.
func TestRequestGoesBeforeOwnParameters(t *testing.T) {
	for _, test := range []struct {
		name   string
		own    []string
		query  string
		status int
		want   string
	}{
		{"own filter", []string{"filter", "re"}, "", 200, "red"},
		{"blank filter", []string{"filter", "re"}, "&filter=", 200, "any red pink blue"},
		{"filter of spaces", []string{"filter", "re"}, "&filter=%20", 200, "any red pink blue"},
		{"own date", []string{"date", "2001"}, "", 200, "any red pink blue"},
		{"invalid count", []string{"count", "few"}, "", 400, ""},
		{"invalid count, not needed", []string{"count", "few"}, "&count=1", 200, "any"},
		{"invalid boolean, not needed", []string{"activeOnly", "maybe"}, "&activeOnly=true", 200, "any red blue"},
		{"invalid rule, not needed", []string{"system-version", "1"}, "&system-version=http://x/y|1", 200, "any red pink blue"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &Handler{Library: libraryOf(t, colours, withParameters(test.own...))}
			w, _ := call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+test.query, "")
			var got expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != test.status || codesOnly(got.Expansion.Contains) != test.want {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestBlankDateGoesBeforeOwn(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours, withParameters("date", "2001-02-03"))}
	for query, told := range map[string]bool{"": true, "&date=": false} {
		w, _ := call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+query, "")
		if strings.Contains(w.Body.String(), "2001-02-03") != told {
			t.Errorf("%q: got %s", query, w.Body)
		}
	}
}

func TestValidationGoesBeforeOwnParameters(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours, withParameters("activeOnly", "maybe"))}
	for query, status := range map[string]int{"": 400, "&activeOnly=true": 200} {
		w, _ := call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/own&system=http://x/colours&code=red"+query, "")
		if w.Code != status {
			t.Errorf("%q: got %d %s", query, w.Code, w.Body)
		}
	}
}

// A query of a program has no blank parameters, but those it has go before the value set's own as well.
func TestQueryGoesBeforeOwnParameters(t *testing.T) {
	l := libraryOf(t, colours, withParameters("count", "few", "filter", "re"))
	q := expansion.Query{ValueSetRef: compose.ValueSetRef{URL: "http://x/own"}, Page: expansion.Page{Count: new(3)}}
	x, err := l.Expand(t.Context(), q)
	if err != nil || x.Total() != 1 {
		t.Errorf("got %+v, %v", x, err)
	}
}

func TestOwnSubset(t *testing.T) {
	for _, test := range []struct {
		own   []string
		query []string
		want  string
	}{
		{[]string{"_summary", "count"}, nil, "expansion meta resourceType status"},
		{[]string{"_elements", "url"}, nil, "meta resourceType status url"},
		{[]string{"_elements", "url"}, []string{"_elements", "name"}, "meta resourceType status"},
		{[]string{"_summary", "count"}, []string{"_summary", "false"}, "expansion resourceType status url"},
	} {
		h := &Handler{Library: libraryOf(t, colours, withParameters(test.own...)), Limits: expansion.Limits{Entries: 4}}
		if got, _ := members(t, h, append([]string{"url", "http://x/own"}, test.query...)...); got != test.want {
			t.Errorf("%q and %q: got %s", test.own, test.query, got)
		}
	}
}

// A value set that says it wants the total alone has no codes that could be too many.
func TestOwnSummaryIsNotTooCostly(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours, withParameters("_summary", "count")), Limits: expansion.Limits{Entries: 1}}
	if w, err := request(h, http.MethodGet, query("url", "http://x/own")); err != nil {
		t.Errorf("got %v %s", err, w.Body)
	}
}

// The filter is looked at before what the request brings along is read.
func TestFilterIsCheckedFirst(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours)}
	w, _ := call(t, h, "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/own"},
		{"name":"filter","valueString":"`+strings.Repeat("x", 1001)+`"},{"name":"tx-resource","resource":{"resourceType":"ValueSet","compose":1}}]}`)
	wantText(t, w.Body.String(), "the filter may be at most 1000 bytes long")
}

// demanding is a code system that needs a version, whose codes may be expressions, and whose concepts have other codes.
const demanding = `{"resourceType":"CodeSystem","url":"http://x/demanding","version":"1","status":"active","content":"complete",
	"versionNeeded":true,"compositional":true,"concept":[{"code":"a","display":"A","extension":[
		{"extension":[{"url":"code","valueCode":"a1"},{"url":"use","valueCoding":{"code":"u"}}],"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate"},
		{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"a2"},{"url":"use","valueCoding":{"code":"u"}}]},
		{"url":"http://hl7.org/fhir/StructureDefinition/coding-sctdescid","valueId":"7"}]},{"code":"b"}]}`

// moreCodes is a supplement that has another code for a concept.
const moreCodes = `{"resourceType":"CodeSystem","url":"http://x/more","content":"supplement","status":"active","supplements":"http://x/demanding",
	"concept":[{"code":"b","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"b1"}]}]}]}`

// Other codes of a concept are echoed, each of them.
func TestAlternateCodes(t *testing.T) {
	h := &Handler{Library: libraryOf(t, demanding, moreCodes, valueSetOf("http://x/v", `{"include":[{"system":"http://x/demanding"}]}`))}
	alternate := func(code string) string {
		return `"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"` + code + `"}`
	}
	w, _ := call(t, h, "GET", "/ValueSet/$expand?url=http://x/v", "")
	wantText(t, w.Body.String(), alternate("a1"), alternate("a2"), `coding-sctdescid","valueId":"7"`)
	if strings.Contains(w.Body.String(), alternate("b1")) {
		t.Errorf("a supplement that was not asked for: %s", w.Body)
	}
	w, _ = call(t, h, "GET", "/ValueSet/$expand?url=http://x/v&useSupplement=http://x/more", "")
	wantText(t, w.Body.String(), alternate("a1"), alternate("b1"))
}

func TestVersionNeeded(t *testing.T) {
	h := &Handler{Library: libraryOf(t, demanding, valueSetOf("http://x/v", `{"include":[{"system":"http://x/demanding"}]}`))}
	for path, want := range map[string]string{
		"/ValueSet/$validate-code?url=http://x/v&system=http://x/demanding&code=a":                 "a version is needed",
		"/ValueSet/$validate-code?url=http://x/v&system=http://x/demanding&code=a&systemVersion=1": `"valueBoolean":true`,
		"/CodeSystem/$validate-code?url=http://x/demanding&code=a":                                 "a version is needed",
		"/CodeSystem/$validate-code?url=http://x/demanding&code=a&version=1":                       `"valueBoolean":true`,
	} {
		w, _ := call(t, h, "GET", path, "")
		wantText(t, w.Body.String(), want)
	}
}

// A language that is none is refused, by every operation that has the parameter.
func TestLanguageRefused(t *testing.T) {
	h := &Handler{Library: colourLibrary(t)}
	for _, path := range []string{
		"/ValueSet/$expand?url=http://x/is-red", "/CodeSystem/$lookup?system=http://x/colours&code=red",
		"/ValueSet/$validate-code?url=http://x/is-red&system=http://x/colours&code=red",
	} {
		if w, _ := call(t, h, "GET", path+"&displayLanguage=--", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "displayLanguage") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
		if w, _ := call(t, h, "GET", path+"&displayLanguage=de-CH,*%3Bq=0", ""); w.Code != 200 {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

// Whether a code is in a value set that has all of an unknown code system cannot be told; whether it is in a
// list can.
func TestUnknownSystemNeeded(t *testing.T) {
	h := &Handler{Library: libraryOf(t, valueSetOf("http://x/all", `{"include":[{"system":"http://x/unknown"}]}`),
		valueSetOf("http://x/list", `{"include":[{"system":"http://x/unknown","concept":[{"code":"a"}]}]}`))}
	for query, want := range map[string]struct{ is, isNot string }{
		"url=http://x/all&system=http://x/unknown&code=a":                               {`"x-caused-by-unknown-system","valueCanonical":"http://x/unknown"`, "not-in-vs"},
		"url=http://x/all&system=http://x/other&code=a":                                 {`"not-in-vs"`, "x-caused-by-unknown-system"},
		"url=http://x/list&system=http://x/unknown&code=b":                              {`"not-in-vs"`, "x-caused-by-unknown-system"},
		"url=http://x/all&system=http://x/unknown&code=a&valueset-membership-only=true": {`"not-in-vs"`, "x-caused-by-unknown-system"},
	} {
		w, _ := call(t, h, "GET", "/ValueSet/$validate-code?"+query, "")
		wantText(t, w.Body.String(), want.is, `{"name":"result","valueBoolean":false}`)
		if strings.Contains(w.Body.String(), want.isNot) {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}

// Of a code system whose content is not-present it cannot be told which codes it has (R4 CodeSystem.content; HL7
// terminology ecosystem IG: $validate-code is not processed on it).
func TestContentNotPresent(t *testing.T) {
	h := &Handler{Library: coreLibrary(t)}
	sct := "&system=http://snomed.info/sct&code=138875005"
	for path, want := range map[string]struct{ is, isNot string }{
		"/CodeSystem/$validate-code?url=http://snomed.info/sct&code=138875005":                              {"x-unknown-system", "Unknown code"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/condition-code" + sct:                    {"x-caused-by-unknown-system", "not-in-vs"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/administrative-gender" + sct:             {"not-in-vs", "Unknown code"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/condition-code&systemVersion=2020" + sct: {"x-caused-by-unknown-system", "Unknown code"},
	} {
		w, _ := call(t, h, "GET", path, "")
		wantText(t, w.Body.String(), want.is, `{"name":"result","valueBoolean":false}`, "could not be found, so the code cannot be validated")
		if strings.Contains(w.Body.String(), want.isNot) {
			t.Errorf("%s: got %s", path, w.Body)
		}
	}
}

// That a code may be an expression which is not understood is said beside that it is unknown.
func TestCompositional(t *testing.T) {
	h := &Handler{Library: libraryOf(t, demanding, colours)}
	for system, want := range map[string]bool{"http://x/demanding": true, "http://x/colours": false} {
		w, _ := call(t, h, "GET", "/CodeSystem/$validate-code?version=1&code=a:b&url="+system, "")
		wantText(t, w.Body.String(), `"valueBoolean":false`)
		if strings.Contains(w.Body.String(), `"code":"processing-note"`) != want {
			t.Errorf("%s: got %s", system, w.Body)
		}
	}
}
