package quota

import (
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	valid := func() Quota {
		return Quota{Name: "apps", HolderKind: Client, Limit: 1000, Window: caddy.Duration(time.Minute)}
	}
	for name, test := range map[string]struct {
		change func(*Quota)
		want   string // substring of the error
	}{
		"as it is":            {func(*Quota) {}, ""},
		"costs":               {func(q *Quota) { q.Costs = map[string]int{"request": 1, "token": 2, "$expand": 5, "$export-poll": 1000} }, ""},
		"no name":             {func(q *Quota) { q.Name = "" }, "lower-case"},
		"a quote":             {func(q *Quota) { q.Name = `a"b` }, "lower-case"},
		"a long name":         {func(q *Quota) { q.Name = strings.Repeat("a", 33) }, "up to 32"},
		"unknown holder kind": {func(q *Quota) { q.HolderKind = "ip" }, "is not client, person or network"},
		"no limit":            {func(q *Quota) { q.Limit = 0 }, "limit"},
		"a great limit":       {func(q *Quota) { q.Limit = maxLimit + 1 }, "limit"},
		"a short window":      {func(q *Quota) { q.Window = caddy.Duration(time.Second / 2) }, "window"},
		"parts of one":        {func(q *Quota) { q.Window = caddy.Duration(1500 * time.Millisecond) }, "whole seconds"},
		"a long window":       {func(q *Quota) { q.Window = caddy.Duration(32 * 24 * time.Hour) }, "31d"},
		"no operation":        {func(q *Quota) { q.Costs = map[string]int{"expand": 1} }, "such as $expand"},
		"too dear":            {func(q *Quota) { q.Costs = map[string]int{"$expand": 1001} }, "between 1 and the limit"},
		"free":                {func(q *Quota) { q.Costs = map[string]int{"$expand": 0} }, "between 1 and the limit"},
		"tokens of people":    {func(q *Quota) { q.HolderKind, q.Costs = Person, map[string]int{"token": 1} }, "the person is not yet identified"},
	} {
		q := valid()
		test.change(&q)
		if err := q.Check(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		costs map[string]int
		path  string
		want  int
	}{
		{nil, "/fhir/R4/Patient/1", 1},
		{nil, "/fhir/R4/ValueSet/$expand", 1},
		{map[string]int{"$expand": 5}, "/fhir/R4/ValueSet/$expand", 5},
		{map[string]int{"$expand": 5}, "/fhir/R4/ValueSet/x/$expand", 5},
		{map[string]int{"$expand": 5}, "/fhir/R4/Patient", 0},
		{map[string]int{"$expand": 5, "request": 2}, "/fhir/R4/Patient", 2},
		{map[string]int{"$export": 5, "request": 2}, "/fhir/R4/$export", 5},
		{map[string]int{"$export": 5, "request": 2}, "/fhir/R4/$export/x", 2},
	} {
		q := Quota{Costs: test.costs}
		if got := q.cost(RequestKind(test.path)); got != test.want {
			t.Errorf("%v: %s costs %d", test.costs, test.path, got)
		}
		if got := q.cost(Token); got != 0 {
			t.Errorf("%v: a token costs %d", test.costs, got)
		}
	}
}
