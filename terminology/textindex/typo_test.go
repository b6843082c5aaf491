package textindex

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex/textindextest"
)

func TestMaxTypos(t *testing.T) {
	for word, want := range map[string]int{
		"": 0, "abc": 0, "abcd": 1, "abcdefg": 1, "abcdefgh": 2, "e119": 0, "abcdefgh1": 0, "éàü": 0, "日本語学": 1, "diabetesⅣ": 0,
	} {
		if got := maxTypos([]byte(word)); got != want {
			t.Errorf("%q: got %d, want %d", word, got, want)
		}
	}
}

// TestTypist compares the shared table with one for each word, over few letters so that much is shared.
func TestTypist(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	word := func() string {
		var b strings.Builder
		for range 1 + r.IntN(9) {
			b.WriteRune([]rune("abcé")[r.IntN(4)])
		}
		return b.String()
	}
	for range 300 {
		typed, most := word(), 1+r.IntN(2)
		typist := newTypist([]byte(typed), most)
		for range 60 {
			candidate := word()
			best := math.MaxInt
			letters := []rune(candidate)
			for n := 1; n <= len(letters); n++ {
				best = min(best, textindextest.Distance(letters[:n], []rune(typed)))
			}
			want := letters[0] == []rune(typed)[0] && best <= most
			decided, got := typist.look([]byte(candidate))
			if got != want || decided > len(candidate) {
				t.Fatalf("typed %q, word %q, most %d: got %v after %d bytes, want %v", typed, candidate, most, got, decided, want)
			}
			if _, again := typist.look([]byte(candidate[:decided])); again != got {
				t.Fatalf("typed %q: %q decides for %q, but not alone", typed, candidate[:decided], candidate)
			}
		}
	}
}

func TestTypos(t *testing.T) {
	tests := []struct {
		name, display, filter string
		want                  bool
	}{
		{"a letter wrong", "kidney", "kidnay", true},
		{"a letter too few", "kidney", "kiney", true},
		{"a letter too many", "kidney", "kiddney", true},
		{"two exchanged", "kidney", "kindey", true},
		{"two typos in a short word", "kidney", "konde", false},
		{"two typos in seven letters", "kidneys", "kodnoys", false},
		{"two typos in eight letters", "infarction", "imfarctoin", true},
		{"three typos", "infarction", "omforctoin", false},
		{"the beginning of what is meant", "appendicitis", "apend", true},
		{"the first letter", "kidney", "cidney", false},
		{"accents are none", "Ménière", "menier", true},
	}
	for _, test := range tests {
		d := textindextest.Documents{{Code: "?", Display: test.display}}
		for name, p := range map[string]Part{"index": {Index: New(d)}, "scan": {Corpus: d}} {
			if _, total := search(p, test.filter, 0, 1); (total == 1) != test.want {
				t.Errorf("%s: %s: filter %q for %q: got %d", name, test.name, test.filter, test.display, total)
			}
		}
	}
}
