package terminology

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// slow tries all that the tests draw at random or take from a long list. Otherwise they
// try a tenth of it.
var slow = flag.Bool("slow", false, "try all samples, not a tenth of them")

// samples is how many of all are tried.
func samples(all int) int {
	if *slow {
		return all
	}
	return all / 10
}

// searchBoth looks for a filter in a part, leniently if need be.
func searchBoth(p part, filter string, from, to int) ([]hit, int) {
	f := newTextFilter(filter)
	for _, how := range []leniency{strictly, withinWords, withTypos} {
		if f.allows(how) {
			if hits, total, _ := p.search(f, how, from, to, nil); total > 0 {
				return hits, total
			}
		}
	}
	return nil, 0
}

// checkSearch compares index, scan and the rule by the letter, whole and in pages.
func checkSearch(t *testing.T, d documents, x *index, filter string) {
	t.Helper()
	if newTextFilter(filter) == nil {
		return
	}
	want := plainSearch(d, filter)
	for name, p := range map[string]part{"index": {corpus: d, index: x}, "scan": {corpus: d}} {
		got, total := searchBoth(p, filter, 0, math.MaxInt)
		if !slices.Equal(got, want) || total != len(want) {
			t.Fatalf("%s: filter %q: got %v, total %d, want %v\n%v", name, filter, got, total, want, d)
		}
		size := 1 + len(filter)%5
		var joined []hit
		for from := 0; from <= len(want); from += size {
			page, total := searchBoth(p, filter, from, from+size)
			if total != len(want) {
				t.Fatalf("%s: filter %q from %d: total %d, want %d", name, filter, from, total, len(want))
			}
			joined = append(joined, page...)
		}
		if !slices.Equal(joined, want) {
			t.Fatalf("%s: filter %q in pages of %d: got %v, want %v\n%v", name, filter, size, joined, want, d)
		}
	}
}

func TestSearchAgainstRule(t *testing.T) {
	for seed := range uint64(samples(150)) {
		r := rand.New(rand.NewPCG(seed, 11))
		d := randomDocuments(r, 1+r.IntN(60))
		x := newIndex(d)
		for range 30 {
			checkSearch(t, d, x, randomFilter(r))
		}
	}
}

// TestSearchLarge has so many documents that some prefixes have sets of their own and some letters bitsets.
func TestSearchLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 11))
	d := randomDocuments(r, 6000)
	for i := range 3000 { // what many have, but few at the beginning
		d[i].display = "often " + d[i].display + " seldom"
		if i%500 == 0 {
			d[i].display = "Seldom " + d[i].display
		}
	}
	x := newIndex(d)
	if len(x.common.from) == 0 || len(x.common.sets) == 0 || len(x.lowest) < 100 {
		t.Error("no common prefix, or no sets of any")
	}
	filters := []string{"a", "diab mel", "sel", "seldom"}
	if *slow {
		filters = append(filters, "ab", "abc", "d", "mel diab", "日", "%", "(", "e11.9", "b", "é", "diabx", "2 type", "di", "diabetes", "m", "me", "e11", "x", "xr", "日本", "ab a")
	}
	for _, filter := range filters {
		want := plainSearch(d, filter)
		got, total := searchBoth(part{corpus: d, index: x}, filter, 0, math.MaxInt)
		if !slices.Equal(got, want) || total != len(want) {
			t.Errorf("filter %q: got %d hits, total %d, want %d", filter, len(got), total, len(want))
		}
		for _, window := range [][2]int{{0, 1}, {0, 20}, {7, 27}, {30, firsts}, {30, firsts + 1}, {100, 300}, {5900, 6100}} {
			page, total := searchBoth(part{corpus: d, index: x}, filter, window[0], window[1])
			from, to := min(window[0], len(want)), min(window[1], len(want))
			if !slices.Equal(page, want[from:to]) || total != len(want) {
				t.Errorf("filter %q: got %d and page %v, want %d and %v", filter, total, page, len(want), want[from:to])
			}
		}
	}
}

// TestSearchInCodeSystem asks for pieces of what a real code system has.
func TestSearchInCodeSystem(t *testing.T) {
	l := coreLibrary(t)
	vs, _ := l.valueSet("http://terminology.hl7.org/ValueSet/v3-ActCode")
	x, err := l.expanding(nil).expansion(vs)
	if err != nil {
		t.Fatal(err)
	}
	c := &entryCorpus{library: l, entries: x.entries}
	var d documents
	for row := range x.entries {
		c.rows = append(c.rows, uint32(row))
		doc := document{code: string(c.code(uint32(row))), display: string(c.display(uint32(row))), retired: c.inactive(uint32(row))}
		for _, other := range c.appendOthers(nil, uint32(row)) {
			doc.others = append(doc.others, string(other))
		}
		d = append(d, doc)
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range samples(100) {
		source := d[r.IntN(len(d))]
		words := plainWords(source.display + " " + source.code)
		var typed []string
		for range 1 + r.IntN(3) {
			word := words[r.IntN(len(words))]
			typed = append(typed, word[:1+r.IntN(len(word))])
		}
		filter := strings.Join(typed, " ")
		want := plainSearch(d, filter)
		got, total, _ := l.search(x, newTextFilter(filter), "", 0, math.MaxInt, nil)
		if total != len(want) || len(got) != len(want) {
			t.Fatalf("filter %q: got %d of %d, want %d", filter, len(got), total, len(want))
		}
		for i, e := range got {
			if e != x.entries[want[i].doc] {
				t.Fatalf("filter %q: entry %d: got %q, want %q", filter, i, l.display(e), d[want[i].doc].display)
			}
		}
	}
}

// FuzzFilter checks that the index finds what the rule says, whatever is typed.
func FuzzFilter(f *testing.F) {
	for _, word := range append(randomWords, "e11.9 diab", "\xff", "\xc3", " \x00 ", "a\u2028b", "ǆ", "가", strings.Repeat("a", 300)) {
		f.Add(word)
	}
	d := randomDocuments(rand.New(rand.NewPCG(1, 11)), 60)
	x := newIndex(d)
	f.Fuzz(func(t *testing.T, filter string) {
		if len(filter) <= 1000 {
			checkSearch(t, d, x, filter)
		}
	})
}

// finding is a filter, and the documents that it finds, in order.
type finding struct{ name, filter, want string }

// wantFound has the index and the scan find the same.
func wantFound(t *testing.T, d documents, tests []finding) {
	t.Helper()
	x := newIndex(d)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for name, p := range map[string]part{"index": {corpus: d, index: x}, "scan": {corpus: d}} {
				hits, _ := searchBoth(p, test.filter, 0, math.MaxInt)
				var got []string
				for _, h := range hits {
					got = append(got, fmt.Sprint(h.doc))
				}
				if strings.Join(got, " ") != test.want {
					t.Errorf("%s: filter %q: got %v, want %s", name, test.filter, got, test.want)
				}
			}
		})
	}
}

// TestRankingInside has words that begin inside others.
func TestRankingInside(t *testing.T) {
	d := documents{
		0: {code: "ActivityDefinition", display: "ActivityDefinition"},
		1: {code: "c1", display: "Request orchestration"},
		2: {code: "c2", display: "ServiceRequest"},
		3: {code: "c3", display: "Event", others: []string{"DefinitionDeEvento"}},
		4: {code: "codeOnly", display: "Haemoglobin HbA1c"},
		5: {code: "c5", display: "pH"},
		6: {code: "bareCode"},
	}
	wantFound(t, d, []finding{
		{"inside and at the beginning", "def", "3 0"},
		{"the whole word", "activityd", "0"},
		{"over the middle", "activitydefinition", "0"},
		{"in order", "activity def", "0"},
		{"the other way round", "def act", "0"},
		{"a display that begins so goes first", "req", "1 2"},
		{"one letter: the display, then words and those inside, then the rest", "r", "1 2 6"},
		{"after a digit and a letter", "a1c", "4"},
		{"short ones stay whole", "ph", "5"},
		{"a code is not cut", "only", "4"},
		{"not even before another", "only haem", "4"},
		{"a code that is what is shown", "code", "6 4"},
		{"a typo inside", "defintion", "3 0"},
	})
}

// TestSearchResourceTypes has what FHIR itself writes without spaces: every display with such a part is found.
func TestSearchResourceTypes(t *testing.T) {
	const types = "http://hl7.org/fhir/ValueSet/resource-types"
	l := coreLibrary(t)
	for _, part := range []string{"Definition", "Request", "Response"} {
		found := expand(t, l, "url", types, "filter", strings.ToLower(part)).codes()
		for _, code := range expand(t, l, "url", types).codes() {
			if strings.Contains(code, part) && !slices.Contains(found, code) {
				t.Errorf("%s does not find %s: %q", part, code, found)
			}
		}
		inside := func(code string) bool { return !strings.HasPrefix(code, part) }
		if first := slices.IndexFunc(found, inside); first >= 0 && slices.ContainsFunc(found[first:], func(code string) bool { return !inside(code) }) {
			t.Errorf("%s: not first what begins so: %q", part, found)
		}
	}
}

// TestRanking has one filter and what it finds, in order, for each step of the rule.
func TestRanking(t *testing.T) {
	d := documents{
		0: {code: "E11", display: "Type 2 diabetes mellitus"},
		1: {code: "E11.9", display: "Type 2 diabetes mellitus without complications"},
		2: {code: "e119x", display: "Other"},
		3: {code: "dm", display: "Diabetes"},
		4: {code: "D2", display: "Diabetes type 2"},
		5: {code: "D1", display: "Diabetes type 1", retired: true},
		6: {code: "D3", display: "Diabetes type 3"},
		7: {code: "mi", display: "Myocardial infarction", others: []string{"Heart attack", "Herzinfarkt"}},
		8: {code: "ha", display: "Attack of the heart"},
		9: {code: "kidney", display: "Nephropathy in diabetes"},
	}
	wantFound(t, d, []finding{
		{"exact code first", "dm", "3"},
		{"code without dots", "e119", "1 2"},
		{"code with dots", "e11.9", "1 2"},
		{"prefix of a code, the code itself first", "e11", "0 2 1"},
		{"exact display, then its beginnings, the shorter first, the active first", "diabetes", "3 4 6 5 9 0 1"},
		{"words in order, then in any order", "diabetes mellitus", "0 1"},
		{"words in any order", "mellitus diabetes", "0 1"},
		{"in order before out of order", "diab 2", "4 0 1"},
		{"a designation in order before a display out of order", "heart att", "7 8"},
		{"a designation", "herz", "7"},
		{"one letter anywhere, in the display only", "k", "8"},
		{"one letter: beginnings of the display, of words, the rest", "m", "7 0 1"},
		{"in the middle of words, as nothing begins so", "betes", "3 4 6 5 9 0 1"},
		{"in the middle of several words", "betes ellit", "0 1"},
		{"in the middle of a code", "19x", "2"},
		{"a typo", "diabtes", "3 4 6 5 9 0 1"},
		{"two typos in a long word", "nefropathy", "9"},
		{"a typo in one word only", "diabtes mellitus", "0 1"},
		{"no typo where something is found", "typ", "0 1 4 6 5"},
		{"no typo in a short word", "tyx", ""},
		{"no typo in a word with a digit", "e118", ""},
		{"no typo in the first letter", "tiabetes", ""},
		{"a part before a typo", "eart", "8 7"},
	})
}
