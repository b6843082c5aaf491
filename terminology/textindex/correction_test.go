package textindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestTypos(t *testing.T) {
	t.Parallel()
	for word, want := range map[string][2]int{
		"": {}, "abc": {}, "abcd": {}, "abcde": {1, 1}, "abcdef": {2, 1}, "abcdefgh": {2, 2}, "e119": {}, "abcdefgh1": {},
		"éàü": {}, "日本語学": {}, "diabetesⅣ": {}, strings.Repeat("a", 33): {},
	} {
		if wholeTypos, prefixTypos := toleratedTypos([]byte(word)); wholeTypos != want[0] || prefixTypos != want[1] {
			t.Errorf("%q: got %d, %d, want %v", word, wholeTypos, prefixTypos, want)
		}
	}
}

// TestSharedTypoTable compares results of a shared table with those of a separate table for each word. Words consist of few
// distinct letters so that they have common prefixes.
func TestSharedTypoTable(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	word := func() string {
		var b strings.Builder
		for range 1 + r.IntN(9) {
			b.WriteRune([]rune("abcé")[r.IntN(4)])
		}
		return b.String()
	}
	for range 300 {
		typed := word() + "abc"
		typist := newCorrector([]byte(typed))
		for range 60 {
			candidate := word()
			if r.IntN(10) == 0 { // the candidate is longer than the corrector's table
				candidate = typed + strings.Repeat("b", 2*maxCorrectedLength)
			}
			letters, want := []rune(candidate), noScore
			if letters[0] == []rune(typed)[0] {
				if typos := distance(letters, []rune(typed)); typos <= typist.wholeTypos {
					want = 2 * typos
				}
				for n := 1; n < len(letters); n++ {
					if begun := distance(letters[:n], []rune(typed)); begun <= typist.prefixTypos {
						want = min(want, 2*begun+1)
					}
				}
			}
			if got, decided := typist.score([]byte(candidate)); got != want || decided > len(candidate) {
				t.Fatalf("typed %q, word %q: got %d after %d bytes, want %d", typed, candidate, got, decided, want)
			}
		}
	}
}

// distance returns the restricted Damerau-Levenshtein distance, computed with a full table.
func distance(a, b []rune) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		for j := range table[i] {
			switch {
			case i == 0 || j == 0:
				table[i][j] = i + j
			case a[i-1] == b[j-1]:
				table[i][j] = table[i-1][j-1]
			default:
				table[i][j] = 1 + min(table[i-1][j], table[i][j-1], table[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}

// correction is a misspelled word and its corrections, with the most frequent first.
type correction struct {
	typed string
	read  []string
}

// corrections returns the corrections made by the last search.
func corrections(t *Filter) []correction {
	var all []correction
	for _, term := range t.terms {
		for _, word := range term.words {
			read := t.corrections[string(word)]
			if read == nil || slices.ContainsFunc(all, func(c correction) bool { return c.typed == string(word) }) {
				continue
			}
			c := correction{typed: string(word)}
			for _, r := range read {
				c.read = append(c.read, string(r))
			}
			all = append(all, c)
		}
	}
	return all
}

func TestCorrections(t *testing.T) {
	t.Parallel()
	d := documents{
		{Code: "1", Display: "Asthma"},
		{Code: "2", Display: "Asthenia"},
		{Code: "3", Display: "Kidney disease"},
		{Code: "4", Display: "Appendicitis"},
		{Code: "5", Display: "Appendix"},
		{Code: "6", Display: "Appendicitis, acute"},
		{Code: "7", Display: "Ménière's disease"},
		{Code: "8", Display: "Appendi"},
	}
	for _, test := range []struct{ name, filter, want, read string }{
		{"a letter wrong", "kidnay", "3", "[{kidnay [kidney]}]"},
		{"a letter too few", "kiney", "3", "[{kiney [kidney]}]"},
		{"a letter too many", "kiddney", "3", "[{kiddney [kidney]}]"},
		{"two swapped", "kindey", "3", "[{kindey [kidney]}]"},
		{"two typos in six letters", "athsma", "1", "[{athsma [asthma]}]"},
		{"two typos in five letters", "konde", "", "[]"},
		{"a whole word before beginnings", "astma", "1", "[{astma [asthma]}]"},
		{"the beginnings of words, the most common first", "appand", "4 5 6 8", "[{appand [appendicitis appendi appendix]}]"},
		{"one word of several", "apendicitis acute", "6", "[{apendicitis [appendicitis]}]"},
		{"two words", "kidny diseese", "3", "[{kidny [kidney]} {diseese [disease]}]"},
		{"the first letter", "cidney", "", "[]"},
		{"a word that is there is not corrected", "asthma kidney", "", "[]"},
		{"a digit", "kidn3y", "", "[]"},
		{"accents do not count as typos", "menieres", "7", "[]"},
		{"and typos with accents are", "ménierse", "7", "[{menierse [menieres]}]"},
		{"nothing has both", "asthna kidney", "", "[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for name, p := range waysToSearch(d) {
				f := NewFilter(test.filter, nil)
				hits, _ := search(p, f, 0, math.MaxInt)
				var got []string
				for _, h := range hits {
					got = append(got, d[h.Doc].Code)
				}
				if read := fmt.Sprint(corrections(f)); strings.Join(got, " ") != test.want || read != test.read {
					t.Errorf("%s: filter %q: got %v, %s, want %s, %s", name, test.filter, got, read, test.want, test.read)
				}
			}
		})
	}
}

// TestCorrectedAgain checks that a filter that was corrected can be reused for texts that do not require corrections.
func TestCorrectedAgain(t *testing.T) {
	t.Parallel()
	f := NewFilter("asthna", nil)
	for _, word := range []string{"Asthma", "Asthna", "Asthma"} {
		hits, _ := search(unindexedPart(documents{{Code: "1", Display: word}}), f, 0, 1)
		if corrected := f.Corrected(); len(hits) != 1 || (corrected == "") != (word == "Asthna") {
			t.Errorf("%s: %d hits, read as %q", word, len(hits), corrected)
		}
	}
}

// TestCorrectionIsCharged checks that the cost of a lexicon depends on text length: a request may contain a million words.
func TestCorrectionIsCharged(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("kidney ", 10_000)
	spent := 0
	spend := func(steps int) error {
		spent += steps
		return nil
	}
	if _, _, err := Search([]Part{unindexedPart(documents{{Code: "1", Display: text}})}, NewFilter("asthna", nil), 0, 1, spend); err != nil {
		t.Fatal(err)
	}
	if least := lexiconEntryCost * len(text) / bytesPerStep; spent < least {
		t.Errorf("%d steps, want at least %d", spent, least)
	}
}
