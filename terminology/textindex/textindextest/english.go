package textindextest

import (
	"slices"
	"strings"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
)

// stops are the stop words of English.
var stops = func() map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq("an the of in on at by for from to with and or as") {
		set[word] = true
	}
	return set
}()

// stem returns a word's stem; "" if it has none.
func stem(word string) string {
	if len(word) < 4 || len(word) > 64 || strings.ContainsAny(word, "0123456789") {
		return ""
	}
	env := snowballstem.NewEnv(word)
	english.Stem(env)
	stem := env.Current()
	if len(stem) < 3 || !strings.HasPrefix(word, stem[:len(stem)-1]) {
		return ""
	}
	return stem
}

// spelled returns a word in American spelling.
func spelled(word string) string {
	if len(word) < 4 {
		return word
	}
	for _, s := range [][2]string{{"ae", "e"}, {"oe", "e"}, {"sulph", "sulf"}, {"isation", "ization"}} {
		word = strings.ReplaceAll(word, s[0], s[1])
	}
	for _, s := range [][2]string{{"our", "or"}, {"ours", "ors"}, {"ise", "ize"}, {"ised", "ized"}, {"yse", "yze"}, {"bre", "ber"}, {"tre", "ter"}} {
		if rest, ok := strings.CutSuffix(word, s[0]); ok {
			return rest + s[1]
		}
	}
	return word
}

// sameNumber reports whether two words are the same number.
func sameNumber(a, b string) bool {
	for _, line := range []string{
		"1 i one", "2 ii two", "3 iii three", "4 iv four", "5 v five", "6 vi six", "7 vii seven", "8 viii eight", "9 ix nine",
		"10 x ten", "11 xi eleven", "12 xii twelve", "1st first", "2nd second", "3rd third", "4th fourth", "5th fifth", "6th sixth",
	} {
		if words := strings.Fields(line); slices.Contains(words, a) && slices.Contains(words, b) {
			return true
		}
	}
	return false
}
