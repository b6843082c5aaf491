package related_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/operation/related"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// Includes of code systems of the tests.
const (
	animals   = `{"system":"http://x/animals"}`
	dogAndBat = `{"system":"http://x/animals","concept":[{"code":"dog"},{"code":"BAT"}]}`
	mammals   = `{"system":"http://x/animals","filter":[{"property":"concept","op":"is-a","value":"mammal"}]}`
	flyers    = `{"system":"http://x/animals","filter":[{"property":"concept","op":"is-a","value":"flyer"}]}`
	unknown   = `{"system":"http://x/unknown"}`
)

// listed returns an include of codes in a version of a code system.
func listed(system, version string, codes ...string) string {
	concepts := fixture.Repeat(len(codes), func(i int) string { return fmt.Sprintf(`{"code":%q}`, codes[i]) })
	return fmt.Sprintf(`{"system":%q,"version":%q,"concept":[%s]}`, system, version, concepts)
}

func library(t *testing.T, resources ...string) *terminology.Library {
	t.Helper()
	return terminologytest.Library(t, append(resources, fixture.Animals, fixture.Colours,
		fixture.VersionedSystem("http://x/cs", "1", "complete", "a b"), fixture.VersionedSystem("http://x/cs", "2", "complete", "a b c"),
		fixture.VersionedSystem("http://x/part", "1", "fragment", "a b"), fixture.SingleConceptCodeSystem("http://x/only", "1", "one"),
		fixture.VersionedSystem("http://x/exact", "1", "complete", "a"), strings.Replace(fixture.VersionedSystem("http://x/exact", "2", "complete", "a"), `"status"`, `"versionNeeded":true,"status"`, 1),
		fixture.ComposedValueSet("http://x/dogs", "1", listed("http://x/animals", "", "dog")))...)
}

func TestRelations(t *testing.T) {
	l := library(t)
	exclude := func(include, exclude string) string { return include + `],"exclude":[` + exclude }
	v1, v2 := `{"system":"http://x/cs","version":"1"}`, `{"system":"http://x/cs","version":"2"}`
	isFirst := func(version string) string {
		return `{"system":"http://x/cs","version":"` + version + `","filter":[{"property":"code","op":"regex","value":"[a-z]"}]}`
	}
	isA := func(version string) string {
		return `{"system":"http://x/cs","version":"` + version + `","filter":[{"property":"concept","op":"is-a","value":"a"}]}`
	}
	tests := []struct {
		name, this, other string
		policy            string
		want              string // relation and whether the value sets were expanded; then missing, extra and common codes
	}{
		{"everything", animals, animals, "", "same false"},
		{"different case of a code", dogAndBat, listed("http://x/animals", "", "Dog", "bat"), "", "same false  | | BAT,dog"},
		{"invalid code", listed("http://x/animals", "", "dog", "unicorn"), listed("http://x/animals", "", "dog"), "", "same false unicorn | | dog"},
		{"everything and a part", animals, dogAndBat, "", "superset false"},
		{"everything and all its codes", `{"system":"http://x/only"}`, listed("http://x/only", "", "one"), "", "same false"},
		{"everything of a fragment and all its loaded codes", `{"system":"http://x/part"}`, listed("http://x/part", "", "a", "b"), "", "superset false"},
		{"everything and invalid codes", animals, listed("http://x/animals", "", "unicorn"), "", "disjoint false"},
		{"another code system too", animals, animals + "," + v1, "", "subset false"},
		{"another code system without valid codes", animals, animals + "," + listed("http://x/cs", "", "zz"), "", "same false"},
		{"lists in two code systems", dogAndBat + "," + listed("http://x/cs", "", "a"), dogAndBat + "," + listed("http://x/cs", "", "b"), "", "overlapping false a | b | "},
		{"filters with common codes", mammals, flyers, "", "overlapping true mammal,dog | flyer,fly | bat"},
		{"filters without common codes", mammals, strings.Replace(flyers, "flyer", "dodo", 1), "", "disjoint false"},
		{"unknown concept in a filter", mammals, strings.Replace(mammals, "mammal", "unicorn", 1), "", "indeterminate true"},
		{"import", mammals, mammals + `,{"valueSet":["http://x/dogs"]}`, "", "same true"},
		{"exclude", exclude(animals, dogAndBat), exclude(animals, listed("http://x/animals", "", "dog")), "", "subset true  | bat | animal,mammal,flyer,fly,dodo,chimera"},
		{"nothing", exclude(animals, animals), exclude(mammals, mammals), "", "empty true"},
		{"unknown code system", unknown, unknown, "", "same false"},
		{"unknown code system and an exclude", exclude(unknown, animals), exclude(unknown, animals), "", "same false"},
		{"unknown code system and another exclude", exclude(unknown, animals), exclude(unknown, mammals), "", "indeterminate true"},
		{"part of an unknown code system", unknown, listed("http://x/unknown", "", "a"), "", "superset false"},
		{"fragment", `{"system":"http://x/part"},{"valueSet":["http://x/dogs"]}`, animals, "", "indeterminate true"},
		{"versions", v1, v2, "", "same false"},
		{"versions that matter", v1, v2, "always", "disjoint true a,b | a,b,c | "},
		{"versions of a list", listed("http://x/cs", "1", "a"), listed("http://x/cs", "2", "a"), "", "same false  | | a"},
		{"versions of a filter", isFirst("1"), isFirst("2"), "", "subset true  | c | a,b"},
		{"ignored versions of a filter", isFirst("1"), isFirst("2"), "never", "subset true  | c | a,b"},
		{"required version", listed("http://x/exact", "1", "a"), listed("http://x/exact", "2", "a"), "", "disjoint true a | a | "},
		{"ignored required version", `{"system":"http://x/exact","version":"1"}`, `{"system":"http://x/exact","version":"2"}`, "never", "same false"},
		{"ignored versions of an is-a filter", isA("1"), isA("2"), "never", "same false"},
		{"no includes", "", "", "", "empty false"},
		{"different rules about inactive codes of an unknown code system", exclude(unknown, animals), unknown + `],"inactive":false,"exclude":[` + animals, "", "indeterminate true"},
		{"different dates of an unknown code system", exclude(unknown, animals), unknown + `],"lockedDate":"2020-01-01","exclude":[` + animals, "", "indeterminate true"},
		{"all versions", `{"system":"http://x/cs","version":"*"}`, v2, "", "same true"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result := run(t, l, related.Query{This: inline("this", test.this), Other: inline("other", test.other), VersionPolicy: test.policy})
			got := fmt.Sprintf("%s %t", result.Relation, result.IsExpanded)
			if len(result.Only[0])+len(result.Only[1])+len(result.Common) > 0 {
				got += fmt.Sprintf(" %s | %s | %s", strings.Join(result.Only[0], ","), strings.Join(result.Only[1], ","), strings.Join(result.Common, ","))
			}
			if normalize(got) != normalize(test.want) {
				t.Errorf("got %s (%s), want %s", got, result.Message, test.want)
			}
		})
	}
}

// normalize removes repeated spaces.
func normalize(s string) string { return strings.Join(strings.Fields(s), " ") }

// inline refers to a value set with the given includes.
func inline(name, includes string) expansion.ValueSetRef {
	return expansion.ValueSetRef{ValueSet: jsontext.Value(fixture.ComposedValueSet("http://x/"+name, "1", includes))}
}

func run(t *testing.T, l *terminology.Library, q related.Query) *related.Result {
	t.Helper()
	result, err := related.Run(t.Context(), l, q)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// contained returns a value set that contains the code system http://x/inner and the value set #in with an include.
func contained(codes, in, include string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":"http://x/container","contained":[%s,{"resourceType":"ValueSet","id":"in","compose":{"include":[%s]}}],
		"status":"active","compose":{"include":[%s]}}`, strings.Replace(fixture.VersionedSystem("http://x/inner", "1", "complete", codes), `"id":"cs",`, "", 1), in, include)
}

// TestResources checks value sets with contained resources, stored expansions and expansion parameters.
func TestResources(t *testing.T) {
	l := library(t, fixture.VersionedSystem("http://x/inner", "1", "complete", "a b c"), strings.Replace(fixture.VersionedSystem("http://x/dated", "1", "complete", "a"), `"status"`, `"date":"2020","status"`, 1),
		strings.Replace(fixture.VersionedSystem("http://x/dated", "2", "complete", "a b"), `"status"`, `"date":"2021","status"`, 1))
	inner, listedInner := `{"system":"http://x/inner"}`, listed("http://x/inner", "", "a", "b", "c")
	of := func(include string) string { return fixture.ComposedValueSet("http://x/other", "1", include) }
	stored := `{"resourceType":"ValueSet","url":"http://x/stored","status":"active","expansion":{"total":2,"contains":[{"system":"http://x/animals","code":"dog"},{"system":"http://x/animals","code":"unicorn"}]}}`
	tests := []struct {
		name, this, other string
		rules             expansion.Rules
		want              string
	}{
		{"contained code system", contained("a b", inner, inner), contained("a b", inner, inner), expansion.Rules{}, "same"},
		{"contained and loaded code system", contained("a b", inner, inner), of(inner), expansion.Rules{}, "subset"},
		{"loaded and contained code system", of(listedInner), contained("a b", inner, inner), expansion.Rules{}, "superset"},
		{"different contained code systems", contained("a b", inner, inner), contained("b c", inner, inner), expansion.Rules{}, "overlapping"},
		{"contained value sets of unknown code systems", contained("a", `{"system":"http://x/u1"}`, `{"valueSet":["#in"]}`), contained("a", `{"system":"http://x/u2"}`, `{"valueSet":["#in"]}`), expansion.Rules{}, "indeterminate"},
		{"stored expansion", stored, of(listed("http://x/animals", "", "dog")), expansion.Rules{}, "superset"},
		{"expansion parameter", fixture.WithParameters("activeOnly", "true"), of(`{"system":"http://x/colours"}`), expansion.Rules{}, "subset"},
		{"date", of(listed("http://x/dated", "", "b")), of(listed("http://x/dated", "", "b")), expansion.Rules{}, "same"},
		{"earlier date", of(listed("http://x/dated", "", "b")), of(listed("http://x/dated", "", "b", "c")), expansion.Rules{Date: "2020"}, "empty"},
		{"required version", of(`{"system":"http://x/cs","version":"2"}`), of(listed("http://x/cs", "2", "a")), expansion.Rules{Versions: compose.VersionRules{Required: []string{"http://x/cs|1"}}}, "indeterminate"},
		{"forced version of a list", of(listed("http://x/cs", "1", "c")), of(listed("http://x/cs", "1", "c", "d")), expansion.Rules{Versions: compose.VersionRules{Forced: []string{"http://x/cs|2"}}}, "same"},
		{"inactive code of a list", of(listed("http://x/animals", "", "dog", "dodo")), of(listed("http://x/animals", "", "dog")), expansion.Rules{ActiveOnly: parameters.Yes}, "same"},
		{"abstract code", of(animals), of(listed("http://x/animals", "", "mammal", "dog", "bat", "flyer", "fly", "dodo", "chimera")), expansion.Rules{ExcludeNotForUI: parameters.Yes}, "same"},
		{"forced version", of(`{"system":"http://x/cs","version":"1"}`), of(listed("http://x/cs", "1", "a", "b", "c")), expansion.Rules{Versions: compose.VersionRules{Forced: []string{"http://x/cs|2"}}}, "same"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q := related.Query{This: expansion.ValueSetRef{ValueSet: jsontext.Value(test.this)}, Other: expansion.ValueSetRef{ValueSet: jsontext.Value(test.other)}}
			q.Expansion.Rules = test.rules
			if result := run(t, l, q); result.Relation != test.want {
				t.Errorf("got %s (%s), want %s", result.Relation, result.Message, test.want)
			}
		})
	}
}

// canceledLater is a context that is canceled after a check.
type canceledLater struct {
	context.Context
	checks int
}

func (c *canceledLater) Err() error {
	if c.checks++; c.checks > 1 {
		return context.Canceled
	}
	return nil
}

// TestCanceled checks that a comparison ends with an error if the client disconnects.
func TestCanceled(t *testing.T) {
	l := library(t, fixture.VersionedSystem("http://x/large", "1", "complete", fixture.Repeat(30_000, func(i int) string { return fmt.Sprintf("c%d ", i) })), fixture.AllCodesOf("http://x/large"),
		fixture.ValueSet("http://x/large-none", `{"include":[{"system":"http://x/large"}],"exclude":[{"system":"http://x/large"}]}`))
	for other, want := range map[string]error{"http://x/large-none": context.Canceled, "http://x/large-all": nil} {
		_, err := related.Run(&canceledLater{Context: t.Context()}, l, related.Query{This: expansion.ValueSetRef{URL: "http://x/large-all"}, Other: expansion.ValueSetRef{URL: other}})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", other, err, want)
		}
	}
}

func TestRequests(t *testing.T) {
	l := library(t, fixture.ComposedValueSet("http://x/pets", "1", dogAndBat),
		fixture.VersionedSystem("http://x/many-codes", "1", "complete", strings.ReplaceAll(fixture.Repeat(10_001, strconv.Itoa), ",", " ")), fixture.ValueSet("http://x/many", `{"include":[{"system":"http://x/many-codes"}]}`),
		`{"resourceType":"ValueSet","id":"bare","url":"http://x/bare","status":"active"}`,
		`{"resourceType":"ValueSet","url":"http://x/odd","modifierExtension":[{"url":"http://x/modifier"}],"status":"active","compose":{"include":[{"system":"http://x/cs"}]}}`,
		strings.Replace(fixture.ValueSet("http://x/active", `{"inactive":false,"include":[`+animals+`]}`), `"url"`, `"id":"active","url"`, 1), fixture.ValueSet("http://x/all", `{"include":[`+animals+`]}`))
	resource := func(name, includes string) string {
		return `{"name":"` + name + `","resource":` + fixture.ComposedValueSet("http://x/pets", "2", includes) + `}`
	}
	url, diagnostics := fixture.URI("otherUrl", "http://x/pets"), `{"name":"diagnostics","valueBoolean":true}`
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"GET", "GET", "/ValueSet/$related?thisUrl=http://x/pets&otherUrl=http://x/dogs", "", 200, `"result","valueCode":"superset"},{"name":"message"`},
		{"other name", "GET", "/ValueSet/$compare?thisUrl=http://x/pets&otherUrl=http://x/dogs", "", 200, `"superset"`},
		{"diagnostics", "GET", "/ValueSet/$related?thisUrl=http://x/pets&otherUrl=http://x/dogs&diagnostics=true", "", 200, `"performed-expansion","valueBoolean":false},{"name":"missing-codes","valueString":"BAT"},{"name":"common-codes","valueString":"dog"`},
		{"instance", "GET", "/ValueSet/active/$related?otherUrl=http://x/active", "", 200, `"same"`},
		{"inactive codes", "GET", "/ValueSet/$related?thisUrl=http://x/active&otherUrl=http://x/all&diagnostics=true", "", 200, `"extra-codes","valueString":"dodo"`},
		{"inactive codes omitted", "GET", "/ValueSet/$related?thisUrl=http://x/active&otherUrl=http://x/all&activeOnly=true", "", 200, `"same"`},
		{"excluded code system", "GET", "/ValueSet/$related?thisUrl=http://x/active&otherUrl=http://x/all&exclude-system=http://x/animals", "", 200, `"empty"`},
		{"version of a value set", "GET", "/ValueSet/$related?thisUrl=http://x/pets&otherUrl=http://x/pets|1&valueSetVersion=2", "", 404, `http://x/pets|2`},
		{"draft beside the loaded value set", "POST", "/ValueSet/$related", fixture.ParametersOf(resource("thisValueSet", animals), url), 200, `"superset"`},
		{"drafts that import each other", "POST", "/ValueSet/$related", fixture.ParametersOf(resource("thisValueSet", mammals), `{"name":"otherValueSet","resource":`+
			fixture.ComposedValueSet("http://x/imports", "1", `{"valueSet":["http://x/pets|2"]}`)+`}`), 200, `"same"`},
		{"code system in the request", "POST", "/ValueSet/$related", fixture.ParametersOf(resource("thisValueSet", unknown), resource("otherValueSet", listed("http://x/unknown", "", "one")),
			fixture.TxResource(fixture.SingleConceptCodeSystem("http://x/unknown", "1", "one"))), 200, `"same"`},
		{"no compose", "GET", "/ValueSet/$related?thisUrl=http://x/pets&otherUrl=http://x/bare", "", 200, `"indeterminate"},{"name":"message","valueString":"The ValueSet http://x/bare has no compose"`},
		{"modifier", "GET", "/ValueSet/$related?thisUrl=http://x/odd&otherUrl=http://x/odd", "", 422, "http://x/modifier"},
		{"unknown value set", "GET", "/ValueSet/$related?thisUrl=http://x/pets&otherUrl=http://x/none", "", 404, "http://x/none"},
		{"no other value set", "GET", "/ValueSet/$related?thisUrl=http://x/pets", "", 400, "otherUrl"},
		{"no value set", "POST", "/ValueSet/$related", fixture.ParametersOf(url, diagnostics), 400, "thisUrl"},
		{"unknown policy", "GET", "/ValueSet/$related?thisUrl=http://x/pets&otherUrl=http://x/pets&version-policy=sometimes", "", 400, "version-policy"},
		{"many codes", "POST", "/ValueSet/$related", fixture.ParametersOf(resource("thisValueSet", listed("http://x/cs", "", "a")), diagnostics,
			resource("otherValueSet", listed("http://x/cs", "", "a")+`,{"valueSet":["http://x/many"]}`)), 200, `"performed-expansion","valueBoolean":true},{"name":"common-codes","valueString":"a"}]`},
		{"CapabilityStatement", "GET", "/metadata", "", 200, `{"name":"related","definition":"http://hl7.org/fhir/tools/OperationDefinition/ValueSet-compare"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, _ := terminologytest.Call(t, &api.Handler{Library: l}, test.method, test.path, test.body)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, test.status, test.want)
			}
		})
	}
}

// TestBudget checks that the comparison ends when the budget is exceeded, and that the relation is then indeterminate.
func TestBudget(t *testing.T) {
	l := library(t)
	l.Definitions().Bounds.VisitedCodes = 80
	result := run(t, l, related.Query{This: inline("this", mammals+","+dogAndBat), Other: inline("other", animals+`],"exclude":[`+flyers)})
	if result.Relation != "indeterminate" || !strings.Contains(result.Message, "more than 80 codes") {
		t.Errorf("got %s: %s", result.Relation, result.Message)
	}
}

// TestMissingDefinitions checks that definitions are reported that could make the relation determinate.
func TestMissingDefinitions(t *testing.T) {
	result := run(t, library(t), related.Query{This: inline("this", unknown+`],"exclude":[`+animals), Other: inline("other", animals)})
	if want := outcome.MissingOf("CodeSystem", "http://x/unknown", ""); !slices.Equal(result.Undefined, want) {
		t.Errorf("got %v, want %v", result.Undefined, want)
	}
}

// TestFetched checks that definitions that the comparison lacks are fetched.
func TestFetched(t *testing.T) {
	source := &terminologytest.RecordingSource{Resources: []string{
		fixture.ComposedValueSet("http://x/vs", "1", `{"valueSet":["http://x/part"]}`), fixture.ComposedValueSet("http://x/part", "1", `{"system":"http://x/fetched"}`),
		fixture.VersionedSystem("http://x/fetched", "1", "complete", "a"),
	}}
	h := &api.Handler{Library: library(t), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$related?thisUrl=http://x/vs&otherUrl=http://x/part", "")
	fixture.WantContains(t, w.Body.String(), `"same"`)
}

// TestRandomValueSets checks that the relation of random value sets is that of their expansions, and that it is inverted if the
// value sets are swapped.
func TestRandomValueSets(t *testing.T) {
	inverse := map[string]string{"subset": "superset", "superset": "subset"}
	seen := make(map[string]int)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := terminologyOf(t, seed%10)
		isVersioned := r.IntN(3) == 0
		a, b := randomCompose(r, isVersioned), randomCompose(r, isVersioned)
		this, other := codesOf(t, l, a), codesOf(t, l, b)
		got := run(t, l, related.Query{This: valueSet("a", a), Other: valueSet("b", b)})
		swapped := run(t, l, related.Query{This: valueSet("b", b), Other: valueSet("a", a)})
		if want := relationOf(this, other); got.Relation != want && !(want == "empty" && a == b) {
			t.Errorf("seed %d: got %s (expanded: %t), want %s\n%s %q\n%s %q", seed, got.Relation, got.IsExpanded, want, a, this, b, other)
		}
		if want := inverse[got.Relation]; swapped.Relation != want && (want != "" || swapped.Relation != got.Relation) {
			t.Errorf("seed %d: %s, swapped %s\n%s\n%s", seed, got.Relation, swapped.Relation, a, b)
		}
		if same := run(t, l, related.Query{This: valueSet("a", a), Other: valueSet("b", a)}); same.Relation != "same" && len(this) > 0 {
			t.Errorf("seed %d: compared with itself: %s\n%s", seed, same.Relation, a)
		}
		seen[fmt.Sprint(got.Relation, " ", got.IsExpanded)]++
	}
	for _, relation := range []string{"same", "subset", "superset", "overlapping", "disjoint"} {
		if seen[relation+" true"] < 20 || seen[relation+" false"] < 20 {
			t.Errorf("too few cases of %s: %v", relation, seen)
		}
	}
}

var libraries = make(map[uint64]*terminology.Library)

// terminologyOf returns a library with two random code systems in two versions each and two value sets.
func terminologyOf(t *testing.T, seed uint64) *terminology.Library {
	t.Helper()
	if l, ok := libraries[seed]; ok {
		return l
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var resources []string
	for system := range 2 {
		for version := range 2 {
			concepts := fixture.Repeat(2+r.IntN(5), func(i int) string {
				var properties []string
				for range min(i, r.IntN(3)) {
					properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, r.IntN(i)))
				}
				if r.IntN(4) == 0 {
					properties = append(properties, `{"code":"inactive","valueBoolean":true}`)
				}
				return fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ","))
			})
			resources = append(resources, fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/s%d","version":"%d.0","status":"active","content":"complete","concept":[%s]}`, system, version+1, concepts))
		}
	}
	libraries[seed] = terminologytest.Library(t, append(resources,
		fixture.ValueSet("http://x/v0", `{"include":[{"system":"http://x/s0"}]}`), fixture.ValueSet("http://x/v1", `{"include":[{"system":"http://x/s1","concept":[{"code":"c1"},{"code":"c2"}]}]}`))...)
	return libraries[seed]
}

// randomCompose returns a compose with includes and sometimes an exclude.
func randomCompose(r *rand.Rand, isVersioned bool) string {
	compose := map[string]any{}
	add := func(name string, n int) {
		var sets []any
		for range n {
			sets = append(sets, randomInclude(r, isVersioned))
		}
		compose[name] = sets
	}
	add("include", 1+r.IntN(2))
	if r.IntN(4) == 0 {
		add("exclude", 1)
	}
	if r.IntN(6) == 0 {
		compose["inactive"] = false
	}
	text, _ := json.Marshal(compose)
	return string(text)
}

// randomInclude returns an include. If versions matter, it does not include entire code systems, whose versions do not matter.
func randomInclude(r *rand.Rand, isVersioned bool) any {
	set := map[string]any{"system": fmt.Sprintf("http://x/s%d", r.IntN(2))}
	if isVersioned && r.IntN(2) == 0 {
		set["version"] = fmt.Sprintf("%d.0", 1+r.IntN(2))
	}
	code := func() string { return fmt.Sprintf("c%d", r.IntN(5)) }
	switch kind := r.IntN(7); {
	case kind == 0 && !isVersioned:
	case kind == 1:
		set["filter"] = []map[string]string{{"property": "concept", "op": "descendent-of", "value": "c0"}}
	case kind == 2:
		set["filter"] = []map[string]string{{"property": "code", "op": "regex", "value": "c[0-3]"}, {"property": "concept", "op": "is-a", "value": "c1"}}
	case kind <= 4:
		set["filter"] = []map[string]string{{"property": "concept", "op": "is-a", "value": fmt.Sprintf("c%d", r.IntN(2))}}
	default:
		set["concept"] = []map[string]string{{"code": code()}, {"code": code()}, {"code": code()}}
	}
	if r.IntN(10) == 0 {
		set["valueSet"] = []string{fmt.Sprintf("http://x/v%d", r.IntN(2))}
	}
	return set
}

func valueSet(name, compose string) expansion.ValueSetRef {
	return expansion.ValueSetRef{ValueSet: jsontext.Value(fixture.ValueSet("http://x/"+name, compose))}
}

// codesOf returns the codes of a value set, regardless of their versions.
func codesOf(t *testing.T, l *terminology.Library, compose string) (codes []string) {
	t.Helper()
	x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: valueSet("a", compose)})
	if err != nil {
		t.Fatal(err)
	}
	for c := range x.Codes() {
		codes = append(codes, c.System+" "+c.Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// relationOf compares two lists of codes.
func relationOf(this, other []string) string {
	common := 0
	for _, code := range this {
		if slices.Contains(other, code) {
			common++
		}
	}
	switch {
	case len(this)+len(other) == 0:
		return "empty"
	case common == 0:
		return "disjoint"
	case common == len(this) && common == len(other):
		return "same"
	case common == len(this):
		return "subset"
	case common == len(other):
		return "superset"
	}
	return "overlapping"
}
