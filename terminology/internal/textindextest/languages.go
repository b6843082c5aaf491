package textindextest

import (
	"slices"
	"strings"
	"sync"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/german"
)

// spoken is the language of the corpus that is searched.
var spoken = &inEnglish

// speaking is held while a corpus is searched.
var speaking sync.Mutex

// plainLanguage is what the rule knows of a language.
type plainLanguage struct {
	stops                 map[string]bool
	stem                  func(*snowballstem.Env) bool
	spellings, endings    [][2]string
	compounds             bool
	dictionary, beginning map[string]int // of the corpus
	divided               map[string][]plainWord
}

var inEnglish = plainLanguage{
	stops: wordSet("an the of in on at by for from to with and or as"), stem: english.Stem,
	spellings: [][2]string{{"ae", "e"}, {"oe", "e"}, {"sulph", "sulf"}, {"isation", "ization"}},
	endings:   [][2]string{{"our", "or"}, {"ours", "ors"}, {"ise", "ize"}, {"ised", "ized"}, {"yse", "yze"}, {"bre", "ber"}, {"tre", "ter"}},
}

var inGerman = plainLanguage{
	stops: wordSet("der die das des dem den ein eine einer eines einem einen und oder im in am an auf bei mit von vom zu zum zur durch fur als"),
	stem:  german.Stem, spellings: [][2]string{{"ae", "a"}, {"oe", "o"}, {"ue", "u"}}, compounds: true,
}

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// speak makes a corpus the one that is searched, until the function that it returns is called.
func speak(d Documents) (end func()) {
	speaking.Lock()
	l := inEnglish
	if d.Language() == "de" {
		l = inGerman
	}
	spoken = &l
	spoken.read(d)
	return speaking.Unlock
}

// stem returns a word's stem; "" if it has none.
func stem(word string) string {
	if len(word) < 4 || len(word) > 64 || strings.ContainsAny(word, "0123456789") {
		return ""
	}
	env := snowballstem.NewEnv(word)
	spoken.stem(env)
	stem := env.Current()
	if len(stem) < 3 || !strings.HasPrefix(word, stem[:len(stem)-1]) {
		return ""
	}
	return stem
}

// spelled returns a word in the one spelling.
func spelled(word string) string {
	if len(word) < 4 {
		return word
	}
	for _, s := range spoken.spellings {
		word = strings.ReplaceAll(word, s[0], s[1])
	}
	for _, s := range spoken.endings {
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
