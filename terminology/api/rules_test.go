package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// postExpand asks for a value set by POST, and returns what it is and whether an offset was told.
func postExpand(t *testing.T, l *terminology.Library, parameters string) (contains string, hasOffset bool) {
	t.Helper()
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[`+parameters+`]}`)
	var got terminologytest.Expanded
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return terminologytest.Outline(got.Expansion.Contains), got.Expansion.Offset != nil
}

func TestOffsetIsOfPages(t *testing.T) {
	l := terminologytest.ColourLibrary(t)
	for parameters, want := range map[string]bool{
		`{"name":"url","valueUri":"http://x/is-red"}`:                                                           false,
		`{"name":"url","valueUri":"http://x/is-red"},{"name":"count","valueInteger":1}`:                         true,
		`{"name":"url","valueUri":"http://x/is-red"},{"name":"offset","valueInteger":0}`:                        true,
		`{"name":"url","valueUri":"http://x/is-red"},{"name":"excludeNested","valueBoolean":true}`:              false,
		`{"name":"url","valueUri":"http://x/is-red"},{"name":"filter","valueString":"p"}`:                       false,
		`{"name":"url","valueUri":"http://x/is-red"},{"name":"offset","valueInteger":9},{"name":"x","part":[]}`: true,
	} {
		if _, got := postExpand(t, l, parameters); got != want {
			t.Errorf("%s: offset told: %t", parameters, got)
		}
	}
}

func TestTrees(t *testing.T) {
	poly := `{"resourceType":"CodeSystem","url":"http://x/poly","status":"active","content":"complete","concept":[{"code":"a","concept":[{"code":"c"}]},
		{"code":"b","concept":[{"code":"d"}]},{"code":"e","property":[{"code":"parent","valueCode":"a"},{"code":"parent","valueCode":"b"}]}]}`
	l := terminologytest.Library(t, fixture.Colours, poly, fixture.AllOf("http://x/poly"),
		fixture.ValueSet("http://x/below-a", `{"include":[{"system":"http://x/poly","filter":[{"property":"concept","op":"is-a","value":"a"}]}]}`),
		fixture.ValueSet("http://x/leaves", `{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"in","value":"any,pink,red"}]}]}`),
		fixture.ValueSet("http://x/ends", `{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"in","value":"any,pink"}]}]}`),
		fixture.ValueSet("http://x/two", `{"include":[{"system":"http://x/colours","filter":[{"property":"concept","op":"is-a","value":"red"}]},{"system":"http://x/colours"}]}`),
		fixture.ValueSet("http://x/but", `{"include":[{"system":"http://x/colours"}],"exclude":[{"system":"http://x/colours","filter":[{"property":"code","op":"=","value":"red"}]}]}`))
	tests := []struct{ name, url, more, want string }{
		{"several parents", "poly-all", "", "a c b d e"},
		{"several parents, but in a part", "below-a", "", "a c e"},
		{"filter", "leaves", "", "any[Any colour]{red[Red]{pink[Pink](status=retired)}}"},
		{"filter leaves out what is between", "ends", "", "any[Any colour] pink[Pink](status=retired)"},
		{"twice the same", "two", "", "red[Red] pink[Pink](status=retired) any[Any colour] blue[Blue]"},
		{"exclude what is between", "but", "", "any[Any colour]{pink[Pink](status=retired) blue[Blue]}"},
		{"text filter", "leaves", `,{"name":"filter","valueString":"re"}`, "red[Red]"},
		{"text filter and page", "leaves", `,{"name":"filter","valueString":"a"},{"name":"count","valueInteger":9}`, "any[Any colour]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, _ := postExpand(t, l, `{"name":"url","valueUri":"http://x/`+test.url+`"}`+test.more)
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestWildcardVersions(t *testing.T) {
	for _, test := range []struct {
		version, pattern string
		want             bool
	}{
		{"1.2.0", "1.2.0", true}, {"1.2.0", "1", false}, {"1.2.0", "1.x", true}, {"1.2.0", "1.x.x", true}, {"1.2.0", "1.2.x", true}, {"1.2.0", "1.3.x", false},
		{"1.2.0", "x", true}, {"1.2.0", "*", true}, {"1.2.0", "1.*.0", true}, {"1.2.1", "1.*.0", false}, {"1", "1.x", true}, {"1.2.0.4", "1.2.x", true},
		{"1.2.0.4", "1.x.0", false}, {"2.0", "1.x", false},
	} {
		if got := definitions.MatchesVersion(test.version, test.pattern); got != test.want {
			t.Errorf("%s and %s: got %t", test.version, test.pattern, got)
		}
	}
}

func TestDifferenceOfVersions(t *testing.T) {
	version := func(v, codes string) string {
		return `{"resourceType":"CodeSystem","url":"http://x/cs","version":"` + v + `","status":"active","content":"complete","concept":[` + codes + `]}`
	}
	l := terminologytest.Library(t, version("1", `{"code":"a"},{"code":"b"}`), version("2", `{"code":"b"},{"code":"c"}`),
		fixture.ValueSet("http://x/new", `{"include":[{"system":"http://x/cs","version":"2"}],"exclude":[{"system":"http://x/cs","version":"1"}]}`))
	got := terminologytest.Expand(t, l, "url", "http://x/new")
	terminologytest.WantEntries(t, got, "c|2")
	fixture.WantText(t, strings.Join(got.Parameters(), " "), "versionsMatch=true")
	terminologytest.WantEntries(t, terminologytest.Expand(t, l, "url", "http://x/new", "versionsMatch", "false"), "b|2", "c|2")
}

func TestVersionsOfValueSets(t *testing.T) {
	version := func(v, date, code string) string {
		return `{"resourceType":"ValueSet","url":"http://x/v","version":"` + v + `","date":"` + date + `","status":"active","compose":{"include":[
			{"system":"http://x/colours","concept":[{"code":"` + code + `"}]}]}}`
	}
	l := terminologytest.Library(t, fixture.Colours, version("1", "2020-05-01", "red"), version("2", "2022-05-01", "blue"), fixture.ValueSet("http://x/outer", `{"include":[{"valueSet":["http://x/v"]}]}`))
	tests := []struct {
		name  string
		pairs []string
		want  string
	}{
		{"latest", []string{"url", "http://x/outer"}, "blue"},
		{"chosen", []string{"url", "http://x/outer", "default-valueset-version", "http://x/v|1"}, "red"},
		{"chosen, of the one that is asked for", []string{"url", "http://x/v", "default-valueset-version", "http://x/v|1"}, "red"},
		{"as on a date", []string{"url", "http://x/v", "date", "2021"}, "red"},
		{"imported as on a date", []string{"url", "http://x/outer", "date", "2021-01"}, "red"},
		{"on the day itself", []string{"url", "http://x/v", "date", "2022-05-01"}, "blue"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, test.pairs...), test.want)
		})
	}
	if e := terminologytest.Refused(t, l, "url", "http://x/v", "date", "2019"); e.Code != "not-supported" {
		t.Errorf("got %v", e)
	}
}

// randomHierarchy makes n concepts with some parents each. Cycles and loops may come about.
func randomHierarchy(r *rand.Rand, n int) (parents [][]int, codeSystem string) {
	parents = make([][]int, n)
	var concepts []string
	for i := range n {
		properties := []string{`{"code":"other","valueString":"x"}`}
		for range r.IntN(3) {
			p := r.IntN(n)
			parents[i] = append(parents[i], p)
			properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, p))
		}
		concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ",")))
	}
	return parents, `{"resourceType":"CodeSystem","url":"http://x/cs","status":"active","content":"complete","concept":[` + strings.Join(concepts, ",") + `]}`
}

// hierarchyModel evaluates the hierarchical filters with the given concept by their definition.
func hierarchyModel(parents [][]int, of int) map[string][]string {
	var isA func(i, of int, seen []int) bool
	isA = func(i, of int, seen []int) bool {
		return i == of || !slices.Contains(seen, i) &&
			slices.ContainsFunc(parents[i], func(p int) bool { return isA(p, of, append(seen, i)) })
	}
	model := map[string][]string{"is-a": {}, "descendent-of": {}, "descendent-leaf": {}, "is-not-a": {}, "generalizes": {}, "child-of": {}}
	for i := range parents {
		isLeaf := !slices.ContainsFunc(parents, func(above []int) bool { return slices.Contains(above, i) })
		holds := map[string]bool{
			"is-a": isA(i, of, nil), "is-not-a": !isA(i, of, nil), "generalizes": isA(of, i, nil),
			"descendent-of": i != of && isA(i, of, nil), "child-of": slices.Contains(parents[i], of),
			"descendent-leaf": i != of && isA(i, of, nil) && isLeaf,
		}
		for op, yes := range holds {
			if yes {
				model[op] = append(model[op], fmt.Sprintf("c%d", i))
			}
		}
	}
	return model
}

func TestHierarchyAgainstNaive(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		parents, codeSystem := randomHierarchy(r, 30)
		of := r.IntN(30)
		want := hierarchyModel(parents, of)
		definitions := []string{codeSystem}
		for op := range want {
			definitions = append(definitions, fixture.ValueSet("http://x/"+op, fmt.Sprintf(`{"include":[{"system":"http://x/cs","filter":[{"property":"concept","op":%q,"value":"c%d"}]}]}`, op, of)))
		}
		l := terminologytest.Library(t, definitions...)
		for op := range want {
			if got := terminologytest.Expand(t, l, "url", "http://x/"+op).Codes(); !slices.Equal(got, want[op]) {
				t.Errorf("seed %d, %s c%d: got %v, want %v", seed, op, of, got, want[op])
			}
		}
	}
}
