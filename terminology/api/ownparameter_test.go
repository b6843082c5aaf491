package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
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
