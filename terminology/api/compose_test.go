package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestCompose(t *testing.T) {
	const all = "animal mammal dog bat flyer fly dodo chimera"
	two := fixture.ValueSet("http://x/two", `{"include":[{"system":"http://x/animals","concept":[{"code":"dog"},{"code":"bat"}]}]}`)
	flying := fixture.ValueSet("http://x/flying", `{"include":[{"system":"http://x/animals","filter":[{"property":"concept","op":"is-a","value":"flyer"}]}]}`)
	tests := []struct{ name, compose, want string }{
		{"whole system", `{"include":[{"system":"http://x/animals"}]}`, all},
		{"listed concepts keep their order", `{"include":[{"system":"http://x/animals","concept":[{"code":"fly"},{"code":"dog"}]}]}`, "fly dog"},
		{"listed twice", `{"include":[{"system":"http://x/animals","concept":[{"code":"fly"},{"code":"fly"}]}]}`, "fly"},
		{"listed in another case", `{"include":[{"system":"http://x/animals","concept":[{"code":"DOG"}]}]}`, "dog"},
		{"listed but no code of the system", `{"include":[{"system":"http://x/animals","concept":[{"code":"cat"},{"code":"dog"}]}]}`, "dog"},
		{"listed from a system that is not here", `{"include":[{"system":"http://x/none","concept":[{"code":"b"},{"code":"a"},{"code":"b"}]}]}`, "b a"},
		{"listed from a version that is not here", `{"include":[{"system":"http://x/animals","version":"9","concept":[{"code":"cat"}]}]}`, "cat"},
		{"includes unite", `{"include":[{"valueSet":["http://x/flying"]},{"valueSet":["http://x/two"]}]}`, "bat flyer fly dog"},
		{"value sets in one include intersect", `{"include":[{"valueSet":["http://x/flying","http://x/two"]}]}`, "bat"},
		{"system and value set intersect", `{"include":[{"system":"http://x/animals","valueSet":["http://x/two"]}]}`, "dog bat"},
		{"filter and value set intersect", `{"include":[{"system":"http://x/animals","filter":[{"property":"kind","op":"=","value":"tame"}],"valueSet":["http://x/two"]}]}`, "dog"},
		{"exclude listed", `{"include":[{"system":"http://x/animals"}],"exclude":[{"system":"http://x/animals","concept":[{"code":"animal"},{"code":"DODO"}]}]}`, "mammal dog bat flyer fly chimera"},
		{"exclude all", `{"include":[{"system":"http://x/animals"}],"exclude":[{"system":"http://x/animals"}]}`, ""},
		{"exclude value set", `{"include":[{"system":"http://x/animals"}],"exclude":[{"valueSet":["http://x/flying"]}]}`, "animal mammal dog dodo chimera"},
		{"exclude with a missing code system", `{"include":[{"system":"http://x/none","concept":[{"code":"a"},{"code":"b"}]}],"exclude":[{"system":"http://x/none","concept":[{"code":"a"}]}]}`, "b"},
		{"exclude what only another version lists", `{"include":[{"system":"http://x/animals"}],"exclude":[{"system":"http://x/animals","version":"9","concept":[{"code":"animal"},{"code":"mammal"},{"code":"dodo"},{"code":"chimera"}]}]}`, "dog bat flyer fly"},
		{"active only", `{"inactive":false,"include":[{"system":"http://x/animals"}]}`, "animal mammal dog bat flyer fly chimera"},
		{"inactive too", `{"inactive":true,"include":[{"system":"http://x/animals"}]}`, all},
		{"version that is here", `{"include":[{"system":"http://x/animals","version":"1.0.0"}]}`, all},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := terminologytest.Library(t, fixture.Animals, two, flying, fixture.ValueSet("http://x/vs", test.compose))
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs"), test.want)
		})
	}
}

func TestConceptFilters(t *testing.T) {
	tests := []struct{ filter, want string }{
		{"concept is-a mammal", "mammal dog bat"},
		{"code is-a mammal", "mammal dog bat"},
		{"concept is-a Mammal", "mammal dog bat"},
		{"concept is-a flyer", "bat flyer fly"},
		{"concept descendent-of mammal", "dog bat"},
		{"concept descendent-of dog", ""},
		{"concept is-not-a animal", "dodo chimera"},
		{"concept descendent-leaf animal", "dog bat fly"},
		{"concept descendent-leaf dog", ""},
		{"concept child-of animal", "mammal flyer fly"},
		{"concept child-of flyer", "bat fly"},
		{"concept generalizes bat", "animal mammal bat flyer"},
		{"concept = dog", "dog"},
		{"code in dog,cat, fly", "dog fly"},
		{"code not-in animal,mammal,dog,bat", "flyer fly dodo chimera"},
		{"code regex [a-d].*", "animal dog bat dodo chimera"},
		{"code regex fl", ""},
		{"code regex fly|dog", "dog fly"},
		{"display regex F.*", "flyer fly"},
		{"display exists false", "chimera"},
		{"display = Fly", "fly"},
		{"kind = wild", "bat fly"},
		{"kind = pest", "fly"},
		{"kind in tame,pest", "dog fly"},
		{"kind not-in wild", "animal mammal dog flyer dodo chimera"},
		{"kind regex w.*|t.*", "dog bat fly"},
		{"kind exists true", "dog bat fly"},
		{"kind exists false", "animal mammal flyer dodo chimera"},
		{"legs = 4", "mammal dog"},
		{"notSelectable = true", "animal"},
		{"parent = flyer", "bat fly"},
		{"child = bat", "mammal flyer"},
		{"parent exists false", "animal dodo chimera"},
		{"status = retired", "dodo"},
	}
	for _, test := range tests {
		t.Run(test.filter, func(t *testing.T) {
			property, rest, _ := strings.Cut(test.filter, " ")
			op, value, _ := strings.Cut(rest, " ")
			filter := fmt.Sprintf(`{"include":[{"system":"http://x/animals","filter":[{"property":%q,"op":%q,"value":%q}]}]}`, property, op, value)
			l := terminologytest.Library(t, fixture.Animals, fixture.ValueSet("http://x/vs", filter))
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs"), test.want)
		})
	}
	t.Run("several must all hold", func(t *testing.T) {
		l := terminologytest.Library(t, fixture.Animals, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/animals","filter":[
			{"property":"concept","op":"is-a","value":"mammal"},{"property":"legs","op":"=","value":"4"},{"property":"kind","op":"exists","value":"false"}]}]}`))
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs"), "mammal")
	})
}

func TestUnexpandable(t *testing.T) {
	notPresent := `{"resourceType":"CodeSystem","url":"http://x/stub","version":"3","status":"active","content":"not-present"}`
	supplement := `{"resourceType":"CodeSystem","url":"http://x/more","status":"active","content":"supplement","supplements":"http://x/animals","concept":[{"code":"dog"}]}`
	include := func(s string) string { return `{"include":[` + s + `]}` }
	tests := []struct {
		name, compose string
		wrapped       error // nil if the error wraps none of the exported errors
		names         []string
	}{
		{"missing code system", include(`{"system":"http://x/none"}`), outcome.ErrIncomplete, []string{"http://x/none"}},
		{"missing code system with version", include(`{"system":"http://x/none","version":"2"}`), outcome.ErrIncomplete, []string{"http://x/none", "version '2'"}},
		{"missing version", include(`{"system":"http://x/animals","version":"2"}`), outcome.ErrIncomplete, []string{"http://x/animals", "2", "1.0.0"}},
		{"not-present", include(`{"system":"http://x/stub"}`), outcome.ErrIncomplete, []string{"http://x/stub|3", "not-present"}},
		{"not-present with a filter", include(`{"system":"http://x/stub","filter":[{"property":"concept","op":"is-a","value":"a"}]}`), outcome.ErrIncomplete, []string{"http://x/stub"}},
		{"supplement", include(`{"system":"http://x/more"}`), outcome.ErrIncomplete, []string{"http://x/more", "supplement"}},
		{"missing in an exclude", `{"include":[{"system":"http://x/animals"}],"exclude":[{"system":"http://x/none"}]}`, outcome.ErrIncomplete, []string{"http://x/none"}},
		{"missing value set", include(`{"valueSet":["http://x/gone"]}`), outcome.ErrIncomplete, []string{"http://x/gone", "http://x/vs"}},
		{"missing version of a value set", include(`{"valueSet":["http://x/vs|7"]}`), outcome.ErrIncomplete, []string{"http://x/vs|7"}},
		{"unknown operator", include(`{"system":"http://x/animals","filter":[{"property":"kind","op":"resembles","value":"a"}]}`), outcome.ErrIncomplete, []string{"resembles", "kind", "http://x/animals"}},
		{"unknown property", include(`{"system":"http://x/animals","filter":[{"property":"wings","op":"=","value":"2"}]}`), outcome.ErrIncomplete, []string{"wings", "http://x/animals"}},
		{"hierarchy over a property", include(`{"system":"http://x/animals","filter":[{"property":"kind","op":"is-a","value":"wild"}]}`), outcome.ErrIncomplete, []string{"kind", "is-a"}},
		{"unknown concept in a filter", include(`{"system":"http://x/animals","filter":[{"property":"concept","op":"is-a","value":"cat"}]}`), outcome.ErrIncomplete, []string{`"cat"`, "http://x/animals"}},
		{"no compose", "", outcome.ErrIncomplete, []string{"http://x/vs", "compose"}},
		{"contained code system", include(`{"system":"#c","concept":[{"code":"a"}]}`), outcome.ErrIncomplete, []string{"#c"}},
		{"bad regex", include(`{"system":"http://x/animals","filter":[{"property":"code","op":"regex","value":"a(b"}]}`), nil, []string{"a(b", "missing closing )"}},
		{"regex that closes brackets which are not its own", include(`{"system":"http://x/animals","filter":[{"property":"code","op":"regex","value":".*)|(?:.*"}]}`), nil, []string{"unexpected )"}},
		{"regex that opens a class", include(`{"system":"http://x/animals","filter":[{"property":"code","op":"regex","value":"["}]}`), nil, []string{"missing closing ]"}},
		{"filter without value", include(`{"system":"http://x/animals","filter":[{"property":"concept","op":"is-a"}]}`), nil, []string{"no value"}},
		{"exists with no boolean", include(`{"system":"http://x/animals","filter":[{"property":"kind","op":"exists","value":"maybe"}]}`), nil, []string{"maybe"}},
		{"include of nothing", include(`{"version":"1"}`), nil, []string{"neither system nor valueSet"}},
		{"concept without system", include(`{"concept":[{"code":"a"}],"valueSet":["http://x/vs"]}`), nil, []string{"no system"}},
		{"concept and filter", include(`{"system":"http://x/animals","concept":[{"code":"dog"}],"filter":[{"property":"code","op":"=","value":"dog"}]}`), nil, []string{"both"}},
		{"imports itself", include(`{"valueSet":["http://x/vs"]}`), nil, []string{"http://x/vs -> http://x/vs"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			vs := fixture.ValueSet("http://x/vs", test.compose)
			if test.compose == "" {
				vs = `{"resourceType":"ValueSet","url":"http://x/vs","status":"active"}`
			}
			e := terminologytest.ExpandError(t, terminologytest.Library(t, fixture.Animals, notPresent, supplement, vs), "url", "http://x/vs")
			if e.Status != http.StatusUnprocessableEntity || e.Code == "" {
				t.Errorf("got status %d, code %q", e.Status, e.Code)
			}
			if errors.Is(e, outcome.ErrIncomplete) != errors.Is(test.wrapped, outcome.ErrIncomplete) || errors.Is(e, outcome.ErrUnknown) {
				t.Errorf("got an error that wraps %v, want %v", e.Err, test.wrapped)
			}
			fixture.WantContains(t, e.Text, test.names...)
		})
	}
}

func TestImportCycle(t *testing.T) {
	l := terminologytest.Library(t,
		fixture.ValueSet("http://x/a", `{"include":[{"valueSet":["http://x/b"]}]}`),
		fixture.ValueSet("http://x/b", `{"include":[{"valueSet":["http://x/c"]}]}`),
		fixture.ValueSet("http://x/c", `{"include":[{"system":"http://x/none","concept":[{"code":"1"}]}],"exclude":[{"valueSet":["http://x/b"]}]}`))
	for range 2 { // a failed expansion must not leave partial state behind
		e := terminologytest.ExpandError(t, l, "url", "http://x/a")
		if e.Status != http.StatusUnprocessableEntity || errors.Is(e, outcome.ErrIncomplete) {
			t.Errorf("got %d, %v", e.Status, e.Err)
		}
		fixture.WantContains(t, e.Text, "http://x/b -> http://x/c -> http://x/b")
	}
}

// chain returns n value sets. Each imports the next value set twice; the last value set lists a code.
func chain(n int) []string {
	sets := []string{}
	for i := range n {
		next := fmt.Sprintf(`{"include":[{"valueSet":["http://x/%d"]},{"valueSet":["http://x/%d"]}]}`, i+1, i+1)
		sets = append(sets, fixture.ValueSet(fmt.Sprintf("http://x/%d", i), next))
	}
	return append(sets, fixture.ValueSet(fmt.Sprintf("http://x/%d", n), `{"include":[{"system":"http://x/none","concept":[{"code":"end"}]}]}`))
}

func TestImportDepth(t *testing.T) {
	l := terminologytest.Library(t, chain(40)...)
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/8"), "end") // 32 imports deep, with 2^32 paths
	e := terminologytest.ExpandError(t, l, "url", "http://x/7")
	if e.Status != http.StatusUnprocessableEntity || e.Code != "too-costly" {
		t.Errorf("got %d %s", e.Status, e.Code)
	}
	fixture.WantContains(t, e.Text, "http://x/7", "32")
}

func TestDeepHierarchy(t *testing.T) {
	const depth = 9000 // the JSON decoder supports 10,000 levels; each nested concept takes two
	var b strings.Builder
	b.WriteString(`{"resourceType":"CodeSystem","url":"http://x/deep","status":"active","content":"complete","concept":[`)
	for i := range depth / 2 {
		fmt.Fprintf(&b, `{"code":"c%d","concept":[`, i)
	}
	b.WriteString(`{"code":"end"}` + strings.Repeat("]}", depth/2) + `]}`)
	l := terminologytest.Library(t, b.String(), fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/deep","filter":[{"property":"concept","op":"is-a","value":"c0"}]}]}`))
	got := terminologytest.Expand(t, l, "url", "http://x/vs")
	if len(got.Codes()) != depth/2+1 || got.Codes()[depth/2] != "end" {
		t.Errorf("got %d codes", len(got.Codes()))
	}
}

func TestHierarchyCycle(t *testing.T) {
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/ring","status":"active","content":"complete","concept":[
		{"code":"a","property":[{"code":"parent","valueCode":"c"}]},{"code":"b","property":[{"code":"parent","valueCode":"a"}]},
		{"code":"c","property":[{"code":"parent","valueCode":"b"}]},{"code":"d"}]}`,
		fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/ring","filter":[{"property":"concept","op":"descendent-of","value":"a"}]}]}`))
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs"), "b c")
}

func TestVersions(t *testing.T) {
	version := func(v, code string) string {
		return fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/cs","version":%q,"status":"active","content":"complete","concept":[{"code":"same","display":%q},{"code":%q}]}`, v, v, code)
	}
	l := terminologytest.Library(t, version("1.10.0", "new"), version("1.9.0", "old"),
		fixture.ValueSet("http://x/latest", `{"include":[{"system":"http://x/cs"}]}`),
		fixture.ValueSet("http://x/old", `{"include":[{"system":"http://x/cs","version":"1.9.0"}]}`),
		fixture.ValueSet("http://x/both", `{"include":[{"system":"http://x/cs","version":"1.9.0"},{"system":"http://x/cs"}]}`),
		fixture.ValueSet("http://x/less", `{"include":[{"system":"http://x/cs"}],"exclude":[{"system":"http://x/cs","version":"1.9.0"}]}`))
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/latest"), "same new")
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/old"), "same old")
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/less"), "same new") // versions differ, so the codes are different
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/less", "versionsMatch", "true"), "new")
	both := terminologytest.Expand(t, l, "url", "http://x/both")
	terminologytest.WantEntries(t, both, "same|1.9.0 1.9.0", "old|1.9.0", "same|1.10.0 1.10.0", "new|1.10.0")
	merged := terminologytest.Expand(t, l, "url", "http://x/both", "versionsMatch", "true")
	terminologytest.WantEntries(t, merged, "same|1.9.0 1.9.0", "old|1.9.0", "new|1.10.0")
	if got := both.Parameters(); !slices.Equal(got, []string{"used-codesystem=http://x/cs|1.9.0", "used-codesystem=http://x/cs|1.10.0"}) {
		t.Errorf("got parameters %v", got)
	}
}

func TestConceptDetails(t *testing.T) {
	l := terminologytest.Library(t, fixture.Animals,
		fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/animals","concept":[{"code":"animal"},{"code":"dog","display":"Hound"},{"code":"dodo"},{"code":"chimera"}]}]}`),
		fixture.ValueSet("http://x/outer", `{"include":[{"valueSet":["http://x/vs"]}]}`))
	got := terminologytest.Expand(t, l, "url", "http://x/outer")
	terminologytest.WantEntries(t, got, "animal Animal abstract", "dog Hound", "dodo Dodo inactive", "chimera")
	if p := got.Parameters(); !slices.Equal(p, []string{"used-codesystem=http://x/animals|1.0.0", "used-valueset=http://x/vs"}) {
		t.Errorf("got parameters %v", p)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs", "filter", "hound"), "dog")
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs", "filter", "dog"), "dog")      // the filter matches the code
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs", "filter", "chim"), "chimera") // the concept has no display; the filter matches its code
}

func TestRepeatedConcept(t *testing.T) {
	// Some authors repeat a concept under each of its parents.
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/cs","status":"active","content":"complete","concept":[
		{"code":"a","concept":[{"code":"ab","display":"AB"}]},{"code":"b","concept":[{"code":"ab","display":"AB again"},{"code":"b2"}]}]}`,
		fixture.ValueSet("http://x/all", `{"include":[{"system":"http://x/cs"}]}`),
		fixture.ValueSet("http://x/b", `{"include":[{"system":"http://x/cs","filter":[{"property":"concept","op":"is-a","value":"b"}]}]}`))
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all"), "a ab b b2")
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/b"), "ab b b2")
}

func TestFragmentKeepsListedCodes(t *testing.T) {
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/cs","version":"1","status":"active","content":"fragment","concept":[{"code":"a","display":"A"}]}`,
		fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/cs","concept":[{"code":"z","display":"Z"},{"code":"a"}]}]}`))
	got := terminologytest.Expand(t, l, "url", "http://x/vs")
	terminologytest.WantCodes(t, got, "z a")
	if !slices.Contains(got.Parameters(), "used-fragment=http://x/cs|1") {
		t.Errorf("got parameters %v", got.Parameters())
	}
}

// TestLockedDate checks that ValueSet.compose.lockedDate selects the versions of code systems, even if the request has a date.
func TestLockedDate(t *testing.T) {
	system := func(version, date, code string) string {
		return fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/s","version":%q,"date":%q,"status":"active","content":"complete","concept":[{"code":%q}]}`, version, date, code)
	}
	locked := func(date string) string { return `{"lockedDate":"` + date + `","include":[{"system":"http://x/s"}]}` }
	l := terminologytest.Library(t, system("1", "2020-01-01", "old"), system("2", "2022-01-01", "new"),
		fixture.ValueSet("http://x/2021", locked("2021-06-01")), fixture.ValueSet("http://x/2023", locked("2023")), fixture.ValueSet("http://x/2019", locked("2019")),
		fixture.ValueSet("http://x/pinned", `{"lockedDate":"2021","include":[{"system":"http://x/s","version":"2"}]}`),
		fixture.ValueSet("http://x/import", `{"include":[{"valueSet":["http://x/2021"]}]}`))
	for url, want := range map[string]string{"http://x/2021": "old", "http://x/2023": "new", "http://x/pinned": "new", "http://x/import": "old"} {
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", url), want)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/2021", "date", "2024-01-01"), "old")
	if e := terminologytest.ExpandError(t, l, "url", "http://x/2019"); !errors.Is(e, outcome.ErrUnsupported) {
		t.Errorf("got %d %s", e.Status, e.Text)
	}
}

// postExpand expands a value set by POST. It returns the JSON of expansion.contains and whether the expansion has an offset.
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
			t.Errorf("%s: has offset: %t", parameters, got)
		}
	}
}

func TestTrees(t *testing.T) {
	poly := `{"resourceType":"CodeSystem","url":"http://x/poly","status":"active","content":"complete","concept":[{"code":"a","concept":[{"code":"c"}]},
		{"code":"b","concept":[{"code":"d"}]},{"code":"e","property":[{"code":"parent","valueCode":"a"},{"code":"parent","valueCode":"b"}]}]}`
	l := terminologytest.Library(t, fixture.Colours, poly, fixture.AllCodesOf("http://x/poly"),
		fixture.ValueSet("http://x/below-a", `{"include":[{"system":"http://x/poly","filter":[{"property":"concept","op":"is-a","value":"a"}]}]}`),
		fixture.ValueSet("http://x/leaves", `{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"in","value":"any,pink,red"}]}]}`),
		fixture.ValueSet("http://x/ends", `{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"in","value":"any,pink"}]}]}`),
		fixture.ValueSet("http://x/two", `{"include":[{"system":"http://x/colours","filter":[{"property":"concept","op":"is-a","value":"red"}]},{"system":"http://x/colours"}]}`),
		fixture.ValueSet("http://x/but", `{"include":[{"system":"http://x/colours"}],"exclude":[{"system":"http://x/colours","filter":[{"property":"code","op":"=","value":"red"}]}]}`))
	tests := []struct{ name, url, more, want string }{
		{"several parents", "poly-all", "", "a c b d e"},
		{"several parents, but in a part", "below-a", "", "a c e"},
		{"filter", "leaves", "", "any[Any colour]{red[Red]{pink[Pink](status=retired)}}"},
		{"filter omits an intermediate concept", "ends", "", "any[Any colour] pink[Pink](status=retired)"},
		{"twice the same", "two", "", "red[Red] pink[Pink](status=retired) any[Any colour] blue[Blue]"},
		{"exclude an intermediate concept", "but", "", "any[Any colour]{pink[Pink](status=retired) blue[Blue]}"},
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
	fixture.WantContains(t, strings.Join(got.Parameters(), " "), "versionsMatch=true")
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
		{"chosen, in the requested version", []string{"url", "http://x/v", "default-valueset-version", "http://x/v|1"}, "red"},
		{"as on a date", []string{"url", "http://x/v", "date", "2021"}, "red"},
		{"imported as on a date", []string{"url", "http://x/outer", "date", "2021-01"}, "red"},
		{"on the day itself", []string{"url", "http://x/v", "date", "2022-05-01"}, "blue"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, test.pairs...), test.want)
		})
	}
	if e := terminologytest.ExpandError(t, l, "url", "http://x/v", "date", "2019"); e.Code != "not-supported" {
		t.Errorf("got %v", e)
	}
}

// randomHierarchy returns n concepts with random parents. A concept may be its own parent or part of a longer cycle.
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

// hierarchyModel returns the codes that each hierarchical filter selects for the concept of, evaluated naively.
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

func TestContained(t *testing.T) {
	l := terminologytest.Library(t, fixture.Colours, fixture.ContainedShapes, fixture.BoundShape,
		fixture.ValueSet("http://x/by-url", `{"include":[{"valueSet":["http://x/v"]}]}`),
		fixture.ValueSet("http://x/by-fragment", `{"include":[{"valueSet":["http://x/v|2#round"]}],"exclude":[{"valueSet":["http://x/v#nothing","http://x/v"]}]}`),
		fixture.ValueSet("http://x/part", `{"include":[{"valueSet":["http://x/v#round"]}]}`),
		strings.Replace(strings.Replace(fixture.ContainedShapes, `"url":"http://x/v"`, `"url":"http://x/without"`, 1), `{"code":"square"}]}]`, `{"code":"square"}]}],"exclude":[{"valueSet":["#round"]}]`, 1),
		fixture.ValueSet("http://x/outside", `{"include":[{"system":"http://x/shapes"}]}`),
		fixture.ValueSet("http://x/outside-set", `{"include":[{"valueSet":["http://x/round"]}]}`))
	for _, test := range []struct {
		name  string
		pairs []string
		want  string
	}{
		{"code systems and value sets", []string{"url", "http://x/v"}, "round[Round] oval[Oval] flat[Flat] square[Square]"},
		{"of an imported value set", []string{"url", "http://x/by-url"}, "round[Round] oval[Oval] flat[Flat] square[Square]"},
		{"by fragment", []string{"url", "http://x/v#both"}, "round[Round] oval[Oval] flat[Flat]"},
		{"by version and fragment", []string{"url", "http://x/v|2#round"}, "round[Round] oval[Oval]"},
		{"imported by fragment", []string{"url", "http://x/part"}, "round[Round] oval[Oval]"},
		{"excluded", []string{"url", "http://x/without"}, "flat[Flat] square[Square]"},
		{"of a profile", []string{"context", "http://x/Shape#Shape.colour"}, "blue[Blue]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := terminologytest.Expand(t, l, append(test.pairs, "excludeNested", "true")...)
			if o := terminologytest.Outline(got.Expansion.Contains); o != test.want {
				t.Errorf("got %s\nwant %s", o, test.want)
			}
		})
	}
	for _, url := range []string{"http://x/outside", "http://x/outside-set", "http://x/by-fragment", "http://x/v#cs"} {
		if e := terminologytest.ExpandError(t, l, "url", url); e.Code != "not-found" {
			t.Errorf("%s: got %d %s %s", url, e.Status, e.Code, e.Text)
		}
	}
	systems := make(map[string]string)
	for _, c := range terminologytest.Expand(t, l, "url", "http://x/v").Expansion.Contains {
		systems[c.Code] = c.System
	}
	if systems["round"] != "http://x/shapes" || systems["flat"] != "http://x/v#nameless" {
		t.Errorf("got systems %v", systems)
	}
}

// TestPackageBeforeFrozenCopies checks that the package hl7.terminology takes precedence over R4's copies, even if the copies have
// higher versions. Code systems that only R4 defines are unaffected, and a stub without content replaces nothing.
func TestPackageBeforeFrozenCopies(t *testing.T) {
	system := func(url, version, content, code string) string {
		concept := `,"concept":[{"code":"` + code + `"}]`
		if code == "" {
			concept = ""
		}
		return `{"resourceType":"CodeSystem","url":"` + url + `","version":"` + version + `","status":"active","content":"` + content + `"` + concept + `}`
	}
	const tho, r4 = "http://terminology.hl7.org/", "http://hl7.org/fhir/"
	folder := t.TempDir()
	for name, definition := range map[string]string{
		"v2":       system(tho+"CodeSystem/v2-0001", "2.0.0", "complete", "new"),
		"v3":       system(tho+"CodeSystem/v3-ActMood", "3.0.0", "complete", "new"),
		"category": system(tho+"CodeSystem/observation-category", "1.0.1", "complete", "new"),
		"stub":     system(tho+"CodeSystem/v2-0002", "3.0.0", "not-present", ""),
		"r4":       system(r4+"administrative-gender", "1.0.0", "complete", "new"),
	} {
		fixture.WriteFile(t, filepath.Join(folder, name+".json"), []byte(definition))
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]bool{
		tho + "ValueSet/v2-0001":              true,
		tho + "CodeSystem/v3-ActMood?fhir_vs": true,
		r4 + "ValueSet/observation-category":  true,
		tho + "ValueSet/v2-0002":              false,
		r4 + "ValueSet/administrative-gender": false,
	} {
		got := terminologytest.Expand(t, l, "url", url).Codes()
		if isNew := len(got) == 1 && got[0] == "new"; isNew != want || len(got) == 0 {
			t.Errorf("%s: got %q, the package's is %t", url, got, want)
		}
	}
	if cs := l.Definitions().Systems.CodeSystems[l.Definitions().Systems.CodeSystem(tho+"CodeSystem/v2-0001", "2.x")]; cs.Version != "2.0.0" {
		t.Errorf("2.x is %s", cs.Version)
	}
	if l.Definitions().Systems.CodeSystem(tho+"CodeSystem/v2-0001", "2.9") == definitions.None {
		t.Error("R4's version is gone")
	}
}

// TestContainedInRequest checks that resources contained in a request's value set apply only to this request.
func TestContainedInRequest(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours)}
	for range 2 {
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand?excludeNested=true", fixture.ContainedShapes)
		var got terminologytest.Expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if o := terminologytest.Outline(got.Expansion.Contains); o != "round[Round] oval[Oval] flat[Flat] square[Square]" {
			t.Errorf("got %s", o)
		}
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/shapes?fhir_vs", ""); w.Code != 404 {
		t.Errorf("later: got %d %s", w.Code, w.Body)
	}
}
