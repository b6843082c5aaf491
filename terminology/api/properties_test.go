package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// randomDefinitions is a random set of definitions in a form that is easy to evaluate naively.
type randomDefinitions struct {
	systems   map[string][]string // codes by system, in definition order
	valueSets []composeModel      // each may import value sets with lower indexes
}

// composeModel is ValueSet.compose.
type composeModel struct{ Include, Exclude []includeModel }

// includeModel is an entry of ValueSet.compose.include or exclude.
type includeModel struct {
	System   string
	Concepts []string
	ValueSet []int // indexes in randomDefinitions.valueSets
}

// systemCode identifies a concept.
type systemCode struct{ system, code string }

// newRandomDefinitions returns definitions with few systems and codes, so that sets overlap. System s9 is never loaded.
func newRandomDefinitions(r *rand.Rand) randomDefinitions {
	w := randomDefinitions{systems: map[string][]string{}}
	for s := range 3 {
		var codes []string
		for c := range 1 + r.IntN(8) {
			codes = append(codes, fmt.Sprintf("c%d", c))
		}
		w.systems[fmt.Sprintf("s%d", s)] = codes
	}
	for v := range 6 {
		var c composeModel
		for range 1 + r.IntN(3) {
			c.Include = append(c.Include, w.randomSet(r, v))
		}
		for range r.IntN(3) {
			c.Exclude = append(c.Exclude, w.randomSet(r, v))
		}
		w.valueSets = append(w.valueSets, c)
	}
	return w
}

// randomSet returns a random include for value set v.
func (w randomDefinitions) randomSet(r *rand.Rand, v int) includeModel {
	var set includeModel
	if v > 0 && r.IntN(2) == 0 {
		for range 1 + r.IntN(3) {
			set.ValueSet = append(set.ValueSet, r.IntN(v))
		}
	}
	if len(set.ValueSet) > 0 && r.IntN(2) == 0 {
		return set
	}
	set.System = []string{"s0", "s1", "s2", "s9"}[r.IntN(4)]
	if set.System == "s9" || r.IntN(2) == 0 {
		for range 1 + r.IntN(5) {
			set.Concepts = append(set.Concepts, fmt.Sprintf("c%d", r.IntN(10)))
		}
	}
	return set
}

// naive evaluates value set v literally as specified in R4.
func (w randomDefinitions) naive(v int) []systemCode {
	without := w.union(w.valueSets[v].Exclude)
	return slices.DeleteFunc(w.union(w.valueSets[v].Include), func(c systemCode) bool { return slices.Contains(without, c) })
}

// union evaluates a list of includes.
func (w randomDefinitions) union(sets []includeModel) []systemCode {
	var all []systemCode
	for _, set := range sets {
		for _, c := range w.intersection(set) {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// intersection evaluates a single include.
func (w randomDefinitions) intersection(set includeModel) []systemCode {
	var lists [][]systemCode
	if set.System != "" {
		var list []systemCode
		codes, exists := w.systems[set.System]
		if set.Concepts == nil {
			set.Concepts = codes
		}
		for _, code := range set.Concepts {
			if !exists || slices.Contains(codes, code) {
				list = append(list, systemCode{set.System, code})
			}
		}
		lists = append(lists, list)
	}
	for _, v := range set.ValueSet {
		lists = append(lists, w.naive(v))
	}
	return slices.DeleteFunc(slices.Clone(lists[0]), func(c systemCode) bool {
		return slices.ContainsFunc(lists, func(list []systemCode) bool { return !slices.Contains(list, c) })
	})
}

// resources returns the definitions as FHIR resources.
func (w randomDefinitions) resources() []string {
	var all []string
	for url, codes := range w.systems {
		concepts := strings.Join(codes, `"},{"code":"`)
		all = append(all, fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"status":"active","content":"complete","concept":[{"code":"%s"}]}`, url, concepts))
	}
	for v, c := range w.valueSets {
		compose := map[string]any{"include": renderSets(c.Include)}
		if c.Exclude != nil {
			compose["exclude"] = renderSets(c.Exclude)
		}
		text, err := json.Marshal(compose)
		if err != nil {
			panic(err)
		}
		all = append(all, fixture.ValueSet(fmt.Sprintf("v%d", v), string(text)))
	}
	return all
}

// renderSets returns includes as members of FHIR JSON.
func renderSets(sets []includeModel) []map[string]any {
	var list []map[string]any
	for _, set := range sets {
		m := map[string]any{}
		if set.System != "" {
			m["system"] = set.System
		}
		var concepts []any
		for _, code := range set.Concepts {
			concepts = append(concepts, map[string]any{"code": code})
		}
		if concepts != nil {
			m["concept"] = concepts
		}
		var imports []string
		for _, v := range set.ValueSet {
			imports = append(imports, fmt.Sprintf("v%d", v))
		}
		if imports != nil {
			m["valueSet"] = imports
		}
		list = append(list, m)
	}
	return list
}

// systemCodesOf returns the concepts of an expansion.
func systemCodesOf(e terminologytest.Expanded) []systemCode {
	var all []systemCode
	for _, c := range e.Expansion.Contains {
		all = append(all, systemCode{c.System, c.Code})
	}
	return all
}

func TestSetAlgebra(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		w := newRandomDefinitions(rand.New(rand.NewPCG(seed, 1)))
		l := terminologytest.Library(t, w.resources()...)
		for v := range w.valueSets {
			got, want := systemCodesOf(terminologytest.Expand(t, l, "url", fmt.Sprintf("v%d", v))), w.naive(v)
			if !slices.Equal(got, want) && len(got)+len(want) > 0 {
				t.Fatalf("seed %d, value set %d: got %v, want %v\n%s", seed, v, got, want, strings.Join(w.resources(), "\n"))
			}
		}
	}
}

func TestPagesFormFullExpansion(t *testing.T) {
	l := terminologytest.Core(t)
	urls := []string{
		gender, "http://hl7.org/fhir/ValueSet/marital-status", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype",
		"http://terminology.hl7.org/ValueSet/v3-ActCode", "http://hl7.org/fhir/ValueSet/doc-section-codes",
	}
	filters := []string{"", "e", "a", "pa", "medical", "the of", "xyz"}
	r := rand.New(rand.NewPCG(7, 7))
	for range 60 {
		url, filter := urls[r.IntN(len(urls))], filters[r.IntN(len(filters))]
		full := terminologytest.Expand(t, l, "url", url, "filter", filter)
		size := 1 + r.IntN(1+*full.Expansion.Total)
		size = max(size, *full.Expansion.Total/20)
		var joined []terminologytest.Entry
		for offset := 0; offset <= *full.Expansion.Total; offset += size {
			page := terminologytest.Expand(t, l, "url", url, "filter", filter, "offset", strconv.Itoa(offset), "count", strconv.Itoa(size))
			if *page.Expansion.Total != *full.Expansion.Total || *page.Expansion.Offset != offset {
				t.Errorf("%s: total %d, offset %d of a page", url, *page.Expansion.Total, *page.Expansion.Offset)
			}
			joined = append(joined, page.Expansion.Contains...)
		}
		if !reflect.DeepEqual(joined, full.Expansion.Contains) || len(joined) != *full.Expansion.Total {
			t.Errorf("%s, filter %q, pages of %d: %d entries of %d", url, filter, size, len(joined), *full.Expansion.Total)
		}
	}
}

// laterFilter returns a filter with an R5 or R6 operator in the form in which HL7's converter writes it in R4: the operator is
// an extension, and an implicit rule of the value set declares that the code is missing.
func laterFilter(release, op, value string) string {
	return fmt.Sprintf(`"filter":[{"property":"concept","_op":{"extension":[{"url":"http://x/other","valueCode":"is-a"},
		{"url":"http://hl7.org/fhir/%s/StructureDefinition/extension-ValueSet.compose.include.filter.op","valueCode":%q}]},"value":%q}]`, release, op, value)
}

const omitted = `{"resourceType":"ValueSet","url":"http://x/vs","status":"active","implicitRules":"https://hl7.org/fhir/implicit-rules/omitted-mandatory-interversion-code",`

// TestLaterOperators checks that R5 operators are supported wherever a value set is read.
func TestLaterOperators(t *testing.T) {
	const animal = `{"system":"http://x/animals",`
	childOf, leaf := animal+laterFilter("5.0", "child-of", "animal")+`}`, animal+laterFilter("5.0", "descendent-leaf", "animal")+`}`
	for _, test := range []struct{ name, members, want string }{
		{"in an include", `"compose":{"include":[` + childOf + `]}}`, "mammal flyer fly"},
		{"in an exclude", `"compose":{"include":[` + leaf + `],"exclude":[` + childOf + `]}}`, "dog bat"},
		{"in what it contains", `"contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[` + leaf + `]}}],"compose":{"include":[{"valueSet":["#in"]}]}}`, "dog bat fly"},
		{"beside one of R4", `"compose":{"include":[` + animal + `"filter":[{"property":"concept","_op":{"extension":[{"valueCode":"child-of",
			"url":"http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.compose.include.filter.op"}]},"op":"is-a","value":"animal"}]}]}}`, "mammal flyer fly"},
		{"of the filter", `"compose":{"include":[` + animal + `"filter":[{"property":"concept","extension":[{"valueCode":"child-of",
			"url":"http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.compose.include.filter.op"}],"value":"animal"}]}]}}`, "mammal flyer fly"},
	} {
		t.Run(test.name, func(t *testing.T) {
			definition := omitted + test.members
			terminologytest.WantCodes(t, terminologytest.Expand(t, terminologytest.Library(t, fixture.Animals, definition), "url", "http://x/vs"), test.want)
			h := &api.Handler{Library: terminologytest.Library(t, fixture.Animals)}
			w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand?excludeNested=true", definition)
			var got terminologytest.Expanded
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			terminologytest.WantCodes(t, got, test.want)
		})
	}
}

// TestLaterFiltersAreNotGuessed checks that a filter with an unknown extension is rejected.
func TestLaterFiltersAreNotGuessed(t *testing.T) {
	const nested = `{"url":"http://hl7.org/fhir/6.0/StructureDefinition/extension-ValueSet.compose.include.filter.filter","extension":[{"url":"op","valueCode":"="}]}`
	for name, filter := range map[string]string{
		"an operator of R6":        laterFilter("6.0", "property-value-of", "animal"),
		"an operator without code": laterFilter("5.0", "", "animal"),
		"no operator":              `"filter":[{"property":"concept","value":"animal"}]`,
		"a filter within":          `"filter":[{"property":"concept","op":"is-a","value":"animal","extension":[` + nested + `]}]`,
	} {
		l := terminologytest.Library(t, fixture.Animals, omitted+`"compose":{"include":[{"system":"http://x/animals",`+filter+`}]}}`)
		if e := terminologytest.ExpandError(t, l, "url", "http://x/vs"); e.Status != http.StatusUnprocessableEntity || !errors.Is(e, outcome.ErrIncomplete) {
			t.Errorf("%s: got %d %s", name, e.Status, e.Text)
		}
	}
}
