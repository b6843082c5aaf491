package textindextest

import (
	"strings"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/german"
)

// plainLanguage is what the rule knows of a language.
type plainLanguage struct {
	stops              map[string]bool
	stemmer            func(*snowballstem.Env) bool
	spellings, endings [][2]string
	compounds          bool
}

var inEnglish = plainLanguage{
	stops: wordSet("an the of in on at by for from to with and or as"), stemmer: english.Stem,
	spellings: [][2]string{{"ae", "e"}, {"oe", "e"}, {"sulph", "sulf"}, {"isation", "ization"}},
	endings:   [][2]string{{"our", "or"}, {"ours", "ors"}, {"ise", "ize"}, {"ised", "ized"}, {"yse", "yze"}, {"bre", "ber"}, {"tre", "ter"}},
}

var inGerman = plainLanguage{
	stops:   wordSet("der die das des dem den ein eine einer eines einem einen und oder im in am an auf bei mit von vom zu zum zur durch fur als"),
	stemmer: german.Stem, spellings: [][2]string{{"ae", "a"}, {"oe", "o"}, {"ue", "u"}}, compounds: true,
}

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// forms are the forms of words that were asked for.
type forms struct {
	language       *plainLanguage
	stems, written map[string]string
}

func newForms(l *plainLanguage) forms { return forms{l, map[string]string{}, map[string]string{}} }

// stem returns a word's stem; "" if it has none.
func (f forms) stem(word string) string { return remembered(f.stems, word, f.language.stem) }

// spelled returns a word in the one spelling.
func (f forms) spelled(word string) string { return remembered(f.written, word, f.language.spelled) }

func remembered(known map[string]string, word string, of func(string) string) string {
	form, ok := known[word]
	if !ok {
		form = of(word)
		known[word] = form
	}
	return form
}

func (l *plainLanguage) stem(word string) string {
	if len(word) < 4 || len(word) > 64 || strings.ContainsAny(word, "0123456789") {
		return ""
	}
	env := snowballstem.NewEnv(word)
	l.stemmer(env)
	stem := env.Current()
	if len(stem) < 3 || !strings.HasPrefix(word, stem[:len(stem)-1]) {
		return ""
	}
	return stem
}

func (l *plainLanguage) spelled(word string) string {
	if len(word) < 4 {
		return word
	}
	for _, s := range l.spellings {
		word = strings.ReplaceAll(word, s[0], s[1])
	}
	for _, s := range l.endings {
		if rest, ok := strings.CutSuffix(word, s[0]); ok {
			return rest + s[1]
		}
	}
	return word
}

// numbers are ways to write numbers, by which.
var numbers = func() map[string]int {
	all := map[string]int{}
	for i, line := range []string{
		"1 i one", "2 ii two", "3 iii three", "4 iv four", "5 v five", "6 vi six", "7 vii seven", "8 viii eight", "9 ix nine",
		"10 x ten", "11 xi eleven", "12 xii twelve", "1st first", "2nd second", "3rd third", "4th fourth", "5th fifth", "6th sixth",
	} {
		for word := range strings.FieldsSeq(line) {
			all[word] = i + 1
		}
	}
	return all
}()

// sameNumber reports whether two words are the same number.
func sameNumber(a, b string) bool { return numbers[a] > 0 && numbers[a] == numbers[b] }
