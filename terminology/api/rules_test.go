package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// postExpand asks for a value set by POST, and returns what it is and whether an offset was told.
func postExpand(t *testing.T, l *terminology.Library, parameters string) (contains string, hasOffset bool) {
	t.Helper()
	w, _ := call(t, &Handler{Library: l}, "POST", "/ValueSet/$expand", `{"resourceType":"Parameters","parameter":[`+parameters+`]}`)
	var got expanded
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return outline(got.Expansion.Contains), got.Expansion.Offset != nil
}

func TestOffsetIsOfPages(t *testing.T) {
	l := colourLibrary(t)
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
	l := libraryOf(t, colours, poly, allOf("http://x/poly"),
		valueSetOf("http://x/below-a", `{"include":[{"system":"http://x/poly","filter":[{"property":"concept","op":"is-a","value":"a"}]}]}`),
		valueSetOf("http://x/leaves", `{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"in","value":"any,pink,red"}]}]}`),
		valueSetOf("http://x/ends", `{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"in","value":"any,pink"}]}]}`),
		valueSetOf("http://x/two", `{"include":[{"system":"http://x/colours","filter":[{"property":"concept","op":"is-a","value":"red"}]},{"system":"http://x/colours"}]}`),
		valueSetOf("http://x/but", `{"include":[{"system":"http://x/colours"}],"exclude":[{"system":"http://x/colours","filter":[{"property":"code","op":"=","value":"red"}]}]}`))
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
	l := libraryOf(t, version("1", `{"code":"a"},{"code":"b"}`), version("2", `{"code":"b"},{"code":"c"}`),
		valueSetOf("http://x/new", `{"include":[{"system":"http://x/cs","version":"2"}],"exclude":[{"system":"http://x/cs","version":"1"}]}`))
	got := expand(t, l, "url", "http://x/new")
	wantEntries(t, got, "c|2")
	wantText(t, strings.Join(got.parameters(), " "), "versionsMatch=true")
	wantEntries(t, expand(t, l, "url", "http://x/new", "versionsMatch", "false"), "b|2", "c|2")
}

func TestVersionsOfValueSets(t *testing.T) {
	version := func(v, date, code string) string {
		return `{"resourceType":"ValueSet","url":"http://x/v","version":"` + v + `","date":"` + date + `","status":"active","compose":{"include":[
			{"system":"http://x/colours","concept":[{"code":"` + code + `"}]}]}}`
	}
	l := libraryOf(t, colours, version("1", "2020-05-01", "red"), version("2", "2022-05-01", "blue"), valueSetOf("http://x/outer", `{"include":[{"valueSet":["http://x/v"]}]}`))
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
		t.Run(test.name, func(t *testing.T) { wantCodes(t, expand(t, l, test.pairs...), test.want) })
	}
	if e := refused(t, l, "url", "http://x/v", "date", "2019"); e.Code != "not-supported" {
		t.Errorf("got %v", e)
	}
}

// R4: the parameter date of $lookup and $validate-code is the day on which things are to be as they were then, and
// compose.lockedDate says the same of a value set's code systems.
func TestAsOnADate(t *testing.T) {
	version := func(v, date, code string) string {
		return strings.Replace(codeSystemWith("http://x/cs", v, code), `"status"`, `"date":"`+date+`","status"`, 1)
	}
	h := &Handler{Library: libraryOf(t, version("1", "2019-05-01", "old"), version("2", "2021-05-01", "new"),
		valueSetOf("http://x/all", `{"include":[{"system":"http://x/cs"}]}`), valueSetOf("http://x/locked", `{"lockedDate":"2020-01-01","include":[{"system":"http://x/cs"}]}`),
		valueSetOf("http://x/listed", `{"include":[{"system":"http://x/elsewhere","concept":[{"code":"a"}]}]}`))}
	const yes, no = `{"name":"result","valueBoolean":true}`, `{"name":"result","valueBoolean":false}`
	for path, want := range map[string]string{
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=new":              yes,
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=new&date=2020":    no,
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=old&date=2020-06": yes,
		"/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&code=old&date=2018":    no,
		"/ValueSet/$validate-code?url=http://x/locked&system=http://x/cs&code=old":           yes,
		"/ValueSet/$validate-code?url=http://x/locked&system=http://x/cs&code=new":           no,
		"/CodeSystem/$validate-code?url=http://x/cs&code=old&date=2020-06-01":                yes,
		"/CodeSystem/$validate-code?url=http://x/cs&code=old&date=2020-06-01&version=2":      no,
		"/CodeSystem/$validate-code?url=http://x/cs&code=old&date=yesterday":                 "must be a date",
		"/ValueSet/$expand?url=http://x/listed":                                              `"code":"a"`,
		"/ValueSet/$expand?url=http://x/listed&date=2030":                                    "not here as it was on 2030",
		"/CodeSystem/$lookup?system=http://x/elsewhere&code=a&date=2030":                     "not here as it was on 2030",
		"/CodeSystem/$lookup?system=http://x/nowhere&code=a&date=2030":                       "could not be found",
		"/CodeSystem/$lookup?system=http://x/cs&code=old&date=2020-06-01":                    `"name":"version","valueString":"1"`,
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=2020-06-01":                    "Unknown code",
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=2018":                          "not here as it was on 2018",
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=2018&version=2":                `"valueString":"2"`,
		"/CodeSystem/$lookup?system=http://x/cs&code=new&date=now":                           "must be a date",
	} {
		w, _ := call(t, h, "GET", path, "")
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %s, want %s", path, w.Body, want)
		}
	}
}

func TestValidateDetails(t *testing.T) {
	h := &Handler{Library: libraryOf(t, colours,
		valueSetOf("http://x/active", `{"inactive":false,"include":[{"system":"http://x/colours"}]}`),
		valueSetOf("http://x/loop", `{"include":[{"system":"http://x/colours"},{"valueSet":["http://x/loop"]}]}`),
		valueSetOf("http://x/but", `{"include":[{"system":"http://x/colours"}],"exclude":[{"system":"http://x/colours","concept":[{"code":"blue"}]}]}`))}
	tests := []struct {
		name, query string
		want        []string
		not         string
	}{
		{"any display where no language is asked for", "url=http://x/active&code=red&display=ROT", []string{`"valueBoolean":true`}, "issue"},
		{"display in the language", "url=http://x/active&code=red&display=Rot&displayLanguage=de", []string{`"valueBoolean":true`}, "issue"},
		{"display in another language", "url=http://x/active&code=red&display=Red&displayLanguage=de", []string{`"valueBoolean":false`, "Valid display is one of 2 choices: 'Rot' (de) or 'Rot (CH)' (de-CH)"}, ""},
		{"inactive ones are not in it", "url=http://x/active&code=pink", []string{`"valueBoolean":false`, "valid but is not active"}, ""},
		{"excluded", "url=http://x/but&code=blue", []string{`"valueBoolean":false`, "not-in-vs"}, ""},
		{"not excluded", "url=http://x/but&code=red", []string{`"valueBoolean":true`}, "issue"},
		{"circle", "url=http://x/loop&code=red", []string{`"OperationOutcome"`, "VALUESET_CIRCULAR_REFERENCE"}, "Parameters"},
		{"other version", "url=http://x/active&code=red&systemVersion=9", []string{`"valueBoolean":false`, "Valid versions: 1.0.0"}, ""},
		{"bad language", "url=http://x/active&code=red&displayLanguage=-", []string{`"OperationOutcome"`, "Invalid displayLanguage"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := call(t, h, "GET", "/ValueSet/$validate-code?system=http://x/colours&"+test.query, "")
			wantText(t, w.Body.String(), test.want...)
			if test.not != "" && strings.Contains(w.Body.String(), test.not) {
				t.Errorf("got %s", w.Body)
			}
		})
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
			definitions = append(definitions, valueSetOf("http://x/"+op, fmt.Sprintf(`{"include":[{"system":"http://x/cs","filter":[{"property":"concept","op":%q,"value":"c%d"}]}]}`, op, of)))
		}
		l := libraryOf(t, definitions...)
		for op := range want {
			if got := expand(t, l, "url", "http://x/"+op).codes(); !slices.Equal(got, want[op]) {
				t.Errorf("seed %d, %s c%d: got %v, want %v", seed, op, of, got, want[op])
			}
		}
	}
}
