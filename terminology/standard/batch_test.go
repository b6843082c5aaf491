package standard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestBatchValidate(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	one := func(code string) string {
		return `{"name":"validation","resource":{"resourceType":"Parameters","parameter":[{"name":"coding","valueCoding":{"system":"http://x/colours","code":"` + code + `"}}]}}`
	}
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/is-red"},` + one("red") + "," + one("blue") +
		`,{"name":"validation","resource":{"resourceType":"Parameters"}}]}`
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$batch-validate-code", body)
	if got := strings.Count(w.Body.String(), `"name":"validation"`); got != 3 || strings.Count(w.Body.String(), `"name":"result"`) != 2 {
		t.Errorf("got %s", w.Body)
	}
	fixture.WantText(t, w.Body.String(), `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid"`)
}

// A bad entry of a batch has an OperationOutcome in its place, and the others have their answers.
func TestBatchValidateBad(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	entry := func(parameters ...string) string {
		return `{"name":"validation","resource":` + fixture.Posted(parameters...) + `}`
	}
	red := `{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`
	bad := []struct{ name, entry, want string }{
		{"nothing to validate", entry(`{"name":"codingX","valueCoding":{"system":"http://x/colours","code":"red"}}`), `"code":"invalid","details":{"text":"Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)"}`},
		{"two codes", entry(red, `{"name":"code","valueCode":"red"}`), "exactly one"},
		{"a code without a system", entry(`{"name":"code","valueCode":"red"}`), "needs the parameter system"},
		{"an unknown value set", entry(red, fixture.URI("url", "http://x/none")), `"Unable_to_resolve_value_Set_"`},
		{"a broken Coding", entry(`{"name":"coding","valueCoding":{"system":1}}`), `"structure"`},
		{"no resource", `{"name":"validation","valueString":"x"}`, "must be a Parameters resource"},
		{"another resource", `{"name":"validation","resource":{"resourceType":"Patient"}}`, "not Patient"},
		{"a bad parameter", entry(red, `{"name":"displayLanguage","valueCode":"--"}`), "displayLanguage"},
	}
	for _, test := range bad {
		t.Run(test.name, func(t *testing.T) {
			w, answer := terminologytest.Call(t, h, "POST", "/ValueSet/$batch-validate-code", fixture.Posted(fixture.URI("url", "http://x/is-red"), entry(red), test.entry, entry(red)))
			var kinds []string
			for _, p := range answer["parameter"].([]any) {
				kinds = append(kinds, p.(map[string]any)["resource"].(map[string]any)["resourceType"].(string))
			}
			if w.Code != 200 || !slices.Equal(kinds, []string{"Parameters", "OperationOutcome", "Parameters"}) || strings.Count(w.Body.String(), `{"name":"result","valueBoolean":true}`) != 2 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			fixture.WantText(t, w.Body.String(), test.want)
		})
	}
}

// What a request brings along for all of its validations is read by each.
func TestBatchIsBounded(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	brought := `{"name":"tx-resource","resource":{"resourceType":"CodeSystem","url":"http://x/c","description":"` + strings.Repeat("x", (256<<20)/500) + `"}}`
	one := `,{"name":"validation","resource":{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/colours/vs"},{"name":"code","valueCode":"red"},{"name":"system","valueUri":"http://x/colours"}]}}`
	for n, want := range map[int]int{1: 200, 500: 413} {
		body := `{"resourceType":"Parameters","parameter":[` + brought + strings.Repeat(one, n) + `]}`
		if w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.ColourLibrary(t)}, "POST", "/ValueSet/$batch-validate-code", body); w.Code != want {
			t.Errorf("%d validations: got %d %.300s", n, w.Code, w.Body)
		}
	}
}

// Source is asked once for what others are asked for then, and a batch is answered as far as it can be.
func TestOthersAfterSource(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	source := &terminologytest.Shelf{}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Gone), Fetched: &terminology.Fetched{Source: source}, Others: true}
	err := terminologytest.Answer(h, httptest.NewRecorder(), httptest.NewRequest("GET", "/CodeSystem/$validate-code?code=a&url="+url.QueryEscape("http://x/cs"), nil))
	if e := (*outcome.Error)(nil); !errors.As(err, &e) || e.Provisional == nil {
		t.Errorf("got %v", err)
	}
	source.WantAsked(t, "CodeSystem http://x/cs")
	w := httptest.NewRecorder()
	batch := `{"resourceType":"Parameters","parameter":[{"name":"validation","resource":{"resourceType":"Parameters","parameter":[
		{"name":"coding","valueCoding":{"system":"http://x/cs","code":"a"}}]}}]}`
	if err := terminologytest.Answer(h, w, httptest.NewRequest("POST", "/ValueSet/$batch-validate-code", strings.NewReader(batch))); err != nil || !strings.Contains(w.Body.String(), "x-unknown-system") {
		t.Errorf("batch: got %v, %s", err, w.Body)
	}
}

// validCodes are the codes that $validate-code accepts in a value set.
func validCodes(t *testing.T, h *api.Handler, url, common string) []string {
	t.Helper()
	var codes, validations []string
	for i := range 28 {
		codes = append(codes, fmt.Sprintf("s%d c%d", i%4, i/4))
		validations = append(validations, `{"name":"validation","resource":`+fixture.Posted(
			fixture.URI("system", fmt.Sprintf("http://x/s%d", i%4)), fmt.Sprintf(`{"name":"code","valueCode":"c%d"}`, i/4))+`}`)
	}
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$batch-validate-code", fixture.Posted(append(validations, fixture.URI("url", url), common)...))
	valid, i := []string{}, 0
	for _, one := range strings.Split(w.Body.String(), `{"name":"validation"`)[1:] {
		if strings.Contains(one, `{"name":"result","valueBoolean":true}`) {
			valid = append(valid, codes[i])
		}
		i++
	}
	if i != len(codes) {
		t.Fatalf("got %s", w.Body)
	}
	return valid
}

// A code is in a value set exactly if the expansion has it: $validate-code, which looks for it without an expansion,
// must find the same, whatever the value set is made of.
func TestValidateAgreesWithExpand(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	t.Parallel()
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 5))
		versions := 1 + int(seed%2)
		definitions := append(randomSystem(r, "http://x/s0", versions), randomSystem(r, "http://x/s1", versions)...)
		definitions = append(definitions, fixture.VersionedSystem("http://x/s3", "1.0", []string{"not-present", "fragment", "example"}[seed%3], "")) // s2 is not here at all
		for v := range 3 {
			imports := v
			if versions > 1 {
				imports = 0 // where versions meet that were chosen elsewhere, which of the two counts is another matter
			}
			compose := fmt.Sprintf(`{"inactive":%t,"include":[%s,%s],"exclude":[%s]}`, r.IntN(3) > 0, randomInclude(r, versions, imports),
				randomInclude(r, versions, imports), randomInclude(r, versions, imports))
			definitions = append(definitions, fixture.ValueSet(fmt.Sprintf("http://x/v%d", v), compose))
		}
		h := &api.Handler{Library: terminologytest.Library(t, definitions...)}
		for v := range 3 {
			for _, active := range []string{"false", "true"} {
				url := fmt.Sprintf("http://x/v%d", v)
				listed := []string{}
				for _, c := range terminologytest.ExpandWith(t, h, "url", url, "activeOnly", active, "excludeNested", "true").Expansion.Contains {
					if code := strings.TrimPrefix(c.System, "http://x/") + " " + c.Code; !slices.Contains(listed, code) {
						listed = append(listed, code)
					}
				}
				valid := validCodes(t, h, url, `{"name":"activeOnly","valueBoolean":`+active+`}`)
				slices.Sort(listed)
				slices.Sort(valid)
				if !slices.Equal(listed, valid) {
					t.Errorf("seed %d, value set %d, activeOnly %s: expanded %q, valid %q\n%s", seed, v, active, listed, valid, definitions[len(definitions)-3+v])
				}
			}
		}
	}
}

// randomSystem makes a code system in some versions, whose concepts differ between them: in their number, what is
// above them, a property, and whether they are active.
func randomSystem(r *rand.Rand, url string, versions int) []string {
	var all []string
	for version := range versions {
		var concepts []string
		for i := range 2 + r.IntN(5) {
			properties := []string{fmt.Sprintf(`{"code":"kind","valueCode":"k%d"}`, r.IntN(3))}
			if r.IntN(4) == 0 {
				properties = append(properties, `{"code":"inactive","valueBoolean":true}`)
			}
			if i > 0 && r.IntN(2) == 0 {
				properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, r.IntN(i)))
			}
			concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ",")))
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"version":"%d.0","status":"active","content":"complete","concept":[%s]}`,
			url, version+1, strings.Join(concepts, ",")))
	}
	return all
}

// randomInclude makes one include or exclude: of a system, in one of its versions or the latest, and of value sets, if
// there are any so far. What is listed may be of a system, or a version of one, that is not here.
func randomInclude(r *rand.Rand, versions, valueSets int) string {
	set := map[string]any{}
	if valueSets > 0 && r.IntN(3) == 0 {
		set["valueSet"] = []string{fmt.Sprintf("http://x/v%d", r.IntN(valueSets))}
	}
	if len(set) == 0 || r.IntN(2) == 0 {
		set["system"] = fmt.Sprintf("http://x/s%d", r.IntN(2))
		if versions > 1 && r.IntN(2) == 0 {
			set["version"] = []string{"1.0", "2.0", "*"}[r.IntN(versions+1)]
		}
		ops := []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}
		switch r.IntN(4) {
		case 0:
			set["concept"] = []map[string]string{{"code": fmt.Sprintf("c%d", r.IntN(7))}, {"code": fmt.Sprintf("c%d", r.IntN(7))}}
			switch r.IntN(6) {
			case 0:
				set["system"] = "http://x/s2"
			case 1:
				set["system"] = "http://x/s3"
			case 2:
				set["version"] = "9.0"
			}
		case 1:
			set["filter"] = []map[string]string{{"property": "concept", "op": ops[r.IntN(len(ops))], "value": fmt.Sprintf("c%d", r.IntN(2))}}
		case 2:
			set["filter"] = []map[string]string{{"property": "kind", "op": []string{"in", "not-in"}[r.IntN(2)], "value": "k0,k1"}, {"property": "code", "op": "regex", "value": "c[0-3]"}}
		}
	}
	text, _ := json.Marshal(set)
	return string(text)
}
