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

// checkExplained checks that explanations have the tiers of the hits, and that they name no more texts than are needed, and
// synonyms where the words themselves are not enough. It returns how many of both they name.
func checkExplained(t *testing.T, d documents, p Part, typed string, synonyms *Synonyms) (texts, named int) {
	t.Helper()
	f := NewFilter(typed, synonyms)
	if f == nil {
		return 0, 0
	}
	hits, all := explained(t, p, f)
	for i, e := range all {
		if e.Tier != int(hits[i].tier)+1 || e.Rule == "" || i > 0 && e.Tier < all[i-1].Tier {
			t.Fatalf("filter %q: hit %d has tier %d (%s), want %d\n%v", typed, i, e.Tier, e.Rule, hits[i].tier+1, d)
		}
		if first := i == 0 || all[i-1].Tier != e.Tier; first != (e.After == "") {
			t.Fatalf("filter %q: hit %d comes after the one before as it %q", typed, i, e.After)
		}
		if f.Corrected() == "" {
			texts, named = texts+len(e.Texts), named+len(e.Synonyms)
			checkTexts(t, f, d[hits[i].Doc], e)
		}
		if alone := tierAlone(withTexts(d[hits[i].Doc], e.Texts), NewFilter(typed, nil)); f.Corrected() == "" && hits[i].tier != tierMeant && (alone+1 > e.Tier) != (len(e.Synonyms) > 0) {
			t.Fatalf("filter %q: synonyms %q for tier %d, without any %d: %+v", typed, e.Synonyms, e.Tier, alone+1, d[hits[i].Doc])
		}
	}
	return texts, named
}

func TestExplainedAsFound(t *testing.T) {
	synonyms, texts, named := readSynonyms(t, randomRules), 0, 0
	for seed := range uint64(samples(150)) {
		r := rand.New(rand.NewPCG(seed, 14))
		d := randomDocuments(r, 1+r.IntN(60))
		for _, p := range waysToSearch(d) {
			for range 20 {
				some, _ := checkExplained(t, d, p, randomFilter(r), nil)
				_, others := checkExplained(t, d, p, randomSynonym(r), synonyms)
				texts, named = texts+some, named+others
			}
		}
	}
	if texts < 100 || named < 20 {
		t.Errorf("only %d texts and %d synonyms were named", texts, named)
	}
}

// tierAlone is the tier of a document that is alone in its corpus, for a filter whose words are as they were found last.
func tierAlone(d document, f *Filter) int {
	for _, how := range []leniency{strictly, withinWords} {
		if hits, _, _ := searchScan(documents{d}, nil, f, how, 0, 1, func(int) error { return nil }); len(hits) > 0 {
			return int(hits[0].tier)
		}
	}
	return int(tierNone)
}

// withTexts returns a document with only some of its texts.
func withTexts(d document, texts []string) document {
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
func checkTexts(t *testing.T, f *Filter, d document, e Explanation) {
	t.Helper()
	if got := tierAlone(withTexts(d, e.Texts), f); got+1 != e.Tier {
		t.Fatalf("filter %q: %q alone are in tier %d, want %d: %+v", f.line, e.Texts, got+1, e.Tier, d)
	}
	for i := range e.Texts {
		fewer := withTexts(d, slices.Delete(slices.Clone(e.Texts), i, i+1))
		if got := tierAlone(fewer, f); got+1 <= e.Tier {
			t.Fatalf("filter %q: %q is not needed for tier %d: %+v", f.line, e.Texts[i], e.Tier, d)
		}
	}
}

// TestExplain has what is said of each document that is found.
func TestExplain(t *testing.T) {
	d := documents{
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
			for name, p := range waysToSearch(d) {
				hits, all := explained(t, p, NewFilter(test.filter, &s))
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
	d := randomDocuments(rand.New(rand.NewPCG(1, 14)), 60)
	f := NewFilter("d", nil)
	hits, _ := search(scanned(d), f, 0, 60)
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
