package textindex

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/textindextest"
)

// explained looks for a filter and explains all hits.
func explained(t *testing.T, p Part, f *Filter) ([]Hit, []Explanation) {
	t.Helper()
	hits, _, err := Search([]Part{p}, f, 0, math.MaxInt, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Explain([]Part{p}, f, hits, nil)
	if err != nil {
		t.Fatal(err)
	}
	return hits, all
}

// checkExplained checks that explanations have the tiers of the rule by the letter, and so never a better one after a worse
// one, and that they name no more texts than are needed. It returns how many they name.
func checkExplained(t *testing.T, w ways, typed string) (named int) {
	t.Helper()
	f := NewFilter(typed)
	if f == nil {
		return 0
	}
	d, want := w.documents, w.rule.Search(typed)
	for name, p := range w.parts {
		hits, all := explained(t, p, f)
		if len(all) != len(want) {
			t.Fatalf("%s: filter %q: %d explanations, want %d", name, typed, len(all), len(want))
		}
		for i, e := range all {
			if e.Tier != int(want[i].Tier)+1 || e.Rule == "" || i > 0 && e.Tier < all[i-1].Tier {
				t.Fatalf("%s: filter %q: hit %d has tier %d (%s), want %d\n%v", name, typed, i, e.Tier, e.Rule, want[i].Tier+1, d)
			}
			if first := i == 0 || all[i-1].Tier != e.Tier; first != (e.After == "") {
				t.Fatalf("%s: filter %q: hit %d comes after the one before as it %q", name, typed, i, e.After)
			}
			if f.Corrected() == "" {
				named += len(e.Texts)
				checkTexts(t, w.rule, d[hits[i].Doc], typed, e)
			}
		}
	}
	return named
}

func TestExplainAgainstRule(t *testing.T) {
	named := 0
	for seed := range uint64(samples(150)) {
		r := rand.New(rand.NewPCG(seed, 14))
		w := waysToSearch(textindextest.RandomDocuments(r, 1+r.IntN(60)))
		for range 20 {
			named += checkExplained(t, w, textindextest.RandomFilter(r))
		}
	}
	if named < 100 {
		t.Errorf("only %d texts were named", named)
	}
}

// withTexts returns a document with only some of its texts.
func withTexts(d textindextest.Document, texts []string) textindextest.Document {
	some := d
	some.Others, some.Foreign = nil, nil
	for _, text := range texts {
		if slices.Contains(d.Others, text) {
			some.Others = append(some.Others, text)
		} else {
			some.Foreign = append(some.Foreign, text)
		}
	}
	return some
}

// checkTexts checks that a document has its tier by the texts that are named, and by no fewer.
func checkTexts(t *testing.T, rule *textindextest.Rule, d textindextest.Document, typed string, e Explanation) {
	t.Helper()
	if got := rule.TierOf(withTexts(d, e.Texts), typed); int(got)+1 != e.Tier {
		t.Fatalf("filter %q: %q alone are in tier %d, want %d: %+v", typed, e.Texts, got+1, e.Tier, d)
	}
	for i := range e.Texts {
		fewer := withTexts(d, slices.Delete(slices.Clone(e.Texts), i, i+1))
		if got := rule.TierOf(fewer, typed); int(got)+1 <= e.Tier {
			t.Fatalf("filter %q: %q is not needed for tier %d: %+v", typed, e.Texts[i], e.Tier, d)
		}
	}
}

// Synonyms are named where the words themselves are not enough by the rule by the letter, and nowhere else.
func TestExplainSynonymsAgainstRule(t *testing.T) {
	rules := []textindextest.Synonym{{Typed: "mi", Other: "myocardial infarction"}, {Typed: "myocardial infarction", Other: "mi"}, {Typed: "diabetes mellitus", Other: "iv of xray"}, {Typed: "mi abc", Other: "a b c d e"}}
	synonyms, named := readSynonyms(t, "mi = myocardial infarction\ndiabetes mellitus => iv of xray\nmi abc => a b c d e"), 0
	for seed := range uint64(samples(150)) {
		d := textindextest.RandomDocuments(rand.New(rand.NewPCG(seed, 18)), 60)
		x, rule, plain := New(d), textindextest.NewRule(d, rules...), textindextest.NewRule(d)
		for _, filter := range []string{"mi", "MI a", "a myocardial infarction", "diabetes mellitus", "diabetes the mellitus 2", "mi mi", "abc mi"} {
			f := NewFilterWith(filter, synonyms)
			want := rule.Search(filter)
			hits, all := explained(t, Part{Index: x}, f)
			for i, e := range all {
				if e.Tier != int(want[i].Tier)+1 {
					t.Fatalf("filter %q: hit %d has tier %d, want %d\n%v", filter, i, e.Tier, want[i].Tier+1, d)
				}
				if f.Corrected() != "" {
					continue
				}
				doc := withTexts(d[hits[i].Doc], e.Texts)
				if alone := plain.TierOf(doc, filter); (int(alone)+1 > e.Tier) != (len(e.Synonyms) > 0) {
					t.Fatalf("filter %q: synonyms %q for tier %d, without any %d: %+v", filter, e.Synonyms, e.Tier, alone+1, doc)
				}
				named += len(e.Synonyms)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d synonyms were named", named)
	}
}

// TestExplain has what is said of each document that is found.
func TestExplain(t *testing.T) {
	d := textindextest.Documents{
		0: {Code: "mi", Display: "Myocardial infarction", Others: []string{"Infarct", "Heart attack", "Attack of the heart"}},
		1: {Code: "ha", Display: "Heart, attack of", Header: true},
		2: {Code: "x1", Display: "Attacking hearts", Others: []string{"Kidney disease", "Renal failure"}},
		3: {Code: "%", Display: "100 %"},
	}
	var s Synonyms
	if err := s.Read(strings.NewReader("stemi, st mi => myocardial infarction\nrenal = kidney\nstemi attack => stroke\nmyocardia => myocardial infarction")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, filter string
		want         []string // document, tier, and what is said beside its rule
	}{
		{"the code", "mi", []string{"0 1"}},
		{"a designation and a display, then a display in its tail", "heart attack", []string{"0 3 Heart attack", "2 3 is later in the value set", "1 4"}},
		{"a display that cannot be chosen", "heart attack of", []string{"0 4 Attack of the heart", "1 4 cannot be chosen"}},
		{"a synonym as the display", "stemi", []string{"0 2 =myocardial infarction"}},
		{"a synonym as the display, of two words", "st mi", []string{"0 2 =myocardial infarction"}},
		{"a synonym beside a word", "stemi infarct", []string{"0 3 =myocardial infarction"}},
		{"a synonym of a shorter run", "attack stemi", []string{"0 3 Heart attack =myocardial infarction"}},
		{"words that need no synonym", "renal failure", []string{"2 3 Renal failure"}},
		{"a designation by a synonym", "kidney failure", []string{"2 3 Renal failure =renal"}},
		{"words in two designations, both needed", "disease failure", []string{"2 3 Kidney disease Renal failure"}},
		{"a display that a synonym names for what begins so", "myocard", []string{"0 5"}},
		{"in the middle", "idney", []string{"2 8 Kidney disease"}},
		{"a typo", "myocardail", []string{"0 3"}},
		{"a letter", "k", []string{"2 8", "1 8 cannot be chosen"}},
		{"signs", "%", []string{"3 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, p := range map[string]Part{"index": {Index: New(d)}, "scan": scanned(d)} {
				hits, all := explained(t, p, NewFilterWith(test.filter, &s))
				var got []string
				for i, e := range all {
					line := strings.Join(append([]string{fmt.Sprint(hits[i].Doc), fmt.Sprint(e.Tier)}, e.Texts...), " ")
					for _, synonym := range e.Synonyms {
						line += " =" + synonym
					}
					got = append(got, strings.TrimSpace(line+" "+e.After))
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%s: got %q, want %q", name, got, test.want)
				}
			}
		})
	}
}

// The table of tiers and what decides within one are in docs/terminology.md word by word.
func TestExplanationsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/terminology.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, rule := range tierRules {
		want = append(want, fmt.Sprintf("| %d | %s", i+1, rule))
	}
	for _, r := range rankRules {
		want = append(want, "`"+r.rule+"`")
	}
	for _, text := range append(want, "`"+afterRule(0, 0)+"`") {
		if !strings.Contains(string(page), text) {
			t.Errorf("docs/terminology.md has no %q", text)
		}
	}
}

// TestExplainOrder has what decides between two ranks: the first part that differs.
func TestExplainOrder(t *testing.T) {
	for want, ranks := range map[string][2]uint32{
		"cannot be chosen":          {rankInactive, rankAbstract},
		"is inactive":               {5, rankInactive},
		"is used less":              {3 << weightShift, 4 << weightShift},
		"is more of a variant":      {7, 1 << variantShift},
		"is more special":           {1 << variantShift, 1<<variantShift | 3},
		"is later in the value set": {7, 7},
	} {
		if got := afterRule(ranks[0], ranks[1]); got != want {
			t.Errorf("%x, %x: got %q, want %q", ranks[0], ranks[1], got, want)
		}
	}
}

// TestExplainPays stops when no more can be spent.
func TestExplainPays(t *testing.T) {
	d := textindextest.RandomDocuments(rand.New(rand.NewPCG(1, 14)), 60)
	f := NewFilter("d")
	hits, _, _ := Search([]Part{scanned(d)}, f, 0, 60, nil)
	spent, errSpent := 0, errors.New("spent")
	_, err := Explain([]Part{scanned(d)}, f, hits, func(steps int) error {
		if spent += steps; spent > 5 {
			return errSpent
		}
		return nil
	})
	if !errors.Is(err, errSpent) || len(hits) < 6 {
		t.Errorf("%d hits, %v", len(hits), err)
	}
}
