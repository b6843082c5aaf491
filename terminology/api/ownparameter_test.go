package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

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
			h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters(test.own...))}
			w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+test.query, "")
			var got terminologytest.Expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != test.status || codesOnly(got.Expansion.Contains) != test.want {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestBlankDateGoesBeforeOwn(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters("date", "2001-02-03"))}
	for query, told := range map[string]bool{"": true, "&date=": false} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+query, "")
		if strings.Contains(w.Body.String(), "2001-02-03") != told {
			t.Errorf("%q: got %s", query, w.Body)
		}
	}
}

// A query of a program has no blank parameters, but those it has go before the value set's own as well.
func TestQueryGoesBeforeOwnParameters(t *testing.T) {
	l := terminologytest.Library(t, fixture.Colours, fixture.WithParameters("count", "few", "filter", "re"))
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
		h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters(test.own...)), Limits: expansion.Limits{Entries: 4}}
		if got, _ := members(t, h, append([]string{"url", "http://x/own"}, test.query...)...); got != test.want {
			t.Errorf("%q and %q: got %s", test.own, test.query, got)
		}
	}
}

// A value set that says it wants the total alone has no codes that could be too many.
func TestOwnSummaryIsNotTooCostly(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, fixture.WithParameters("_summary", "count")), Limits: expansion.Limits{Entries: 1}}
	if w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", "http://x/own")); err != nil {
		t.Errorf("got %v %s", err, w.Body)
	}
}

// The filter is looked at before what the request brings along is read.
func TestFilterIsCheckedFirst(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours)}
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/own"},
		{"name":"filter","valueString":"`+strings.Repeat("x", 1001)+`"},{"name":"tx-resource","resource":{"resourceType":"ValueSet","compose":1}}]}`)
	fixture.WantText(t, w.Body.String(), "the filter may be at most 1000 bytes long")
}

// moreCodes is a supplement that has another code for a concept.
const moreCodes = `{"resourceType":"CodeSystem","url":"http://x/more","content":"supplement","status":"active","supplements":"http://x/demanding",
	"concept":[{"code":"b","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"b1"}]}]}]}`

// Other codes of a concept are echoed, each of them.
func TestAlternateCodes(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Demanding, moreCodes, fixture.ValueSet("http://x/v", `{"include":[{"system":"http://x/demanding"}]}`))}
	alternate := func(code string) string {
		return `"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"` + code + `"}`
	}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/v", "")
	fixture.WantText(t, w.Body.String(), alternate("a1"), alternate("a2"), `coding-sctdescid","valueId":"7"`)
	if strings.Contains(w.Body.String(), alternate("b1")) {
		t.Errorf("a supplement that was not asked for: %s", w.Body)
	}
	w, _ = terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/v&useSupplement=http://x/more", "")
	fixture.WantText(t, w.Body.String(), alternate("a1"), alternate("b1"))
}
