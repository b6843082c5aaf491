package textindex

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/dutch"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/french"
	"github.com/blevesearch/snowballstem/german"
	"github.com/blevesearch/snowballstem/spanish"
)

// language contains the search rules of a language. All words are in the form that textFolder returns.
type language struct {
	stemmer func(*snowballstem.Env) bool

	// stopWords are ignored in a filter, except as its last word, and end the head of a text.
	stopWords map[string]bool

	// spellings replaces variant spellings anywhere in a word, endings only at its end.
	spellings, endings []spelling

	// linkingElements contains the linking elements between the parts of compounds, which are also the endings of words.
	// Shorter elements come first. It is nil if the language does not write compounds as one word.
	linkingElements []string
}

type spelling struct{ from, to string }

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// languages contains the languages by primary tag. "A" and "I" are not stop words because of hepatitis A and factor I.
var languages = map[string]*language{
	"en": {
		stemmer: english.Stem, stopWords: wordSet("an the of in on at by for from to with and or as"),
		spellings: []spelling{{"ae", "e"}, {"oe", "e"}, {"sulph", "sulf"}, {"isation", "ization"}},
		endings:   []spelling{{"our", "or"}, {"ours", "ors"}, {"ise", "ize"}, {"ised", "ized"}, {"yse", "yze"}, {"bre", "ber"}, {"tre", "ter"}},
	},
	"de": {
		stemmer: german.Stem, stopWords: wordSet("der die das des dem den ein eine einer eines einem einen und oder im in am an auf bei mit von vom zu zum zur durch fur als"),
		spellings: []spelling{{"ae", "a"}, {"oe", "o"}, {"ue", "u"}}, linkingElements: compoundElements,
	},
	"fr": {stemmer: french.Stem, stopWords: wordSet("le la les l un une des de du d et ou en au aux dans par pour sur avec")},
	"es": {stemmer: spanish.Stem, stopWords: wordSet("el la los las un una de del y o en con por para al")},
	"nl": {stemmer: dutch.Stem, stopWords: wordSet("de het een en of van in op met voor door bij te aan"), linkingElements: compoundElements},
}

// compoundElements are the linking elements of German; Dutch has a subset.
var compoundElements = []string{"s", "n", "e", "es", "en", "er"}

// languageOf returns the language for a tag (BCP 47). The default is English.
func languageOf(tag string) *language {
	primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
	if l := languages[primary]; l != nil {
		return l
	}
	return languages["en"]
}

// minStemmedLength is the minimum length, in bytes, of words that are stemmed.
const minStemmedLength = 4

// stem returns the stem of a word, or nil if it has none or if the stem, except for its last byte, is not a prefix of it.
func (l *language) stem(word []byte) []byte {
	if len(word) < minStemmedLength || len(word) > maxStemmedLength || bytes.ContainsAny(word, "0123456789") {
		return nil
	}
	env := snowballstem.NewEnv(string(word))
	l.stemmer(env)
	stem := env.Current()
	if len(stem) < minStemmedLength-1 || !bytes.HasPrefix(word, []byte(stem[:len(stem)-1])) {
		return nil
	}
	return []byte(stem)
}

// maxStemmedLength is the maximum length, in bytes, of words that are stemmed. It limits the cost.
const maxStemmedLength = 64

// canonicalSpelling returns a word in canonical spelling, which is the same for anaemia and anemia. Words without variants are
// returned unchanged.
func (l *language) canonicalSpelling(word []byte) []byte {
	if len(word) < minStemmedLength {
		return word
	}
	for _, s := range l.spellings {
		if bytes.Contains(word, []byte(s.from)) {
			word = bytes.ReplaceAll(word, []byte(s.from), []byte(s.to))
		}
	}
	for _, s := range l.endings {
		if bytes.HasSuffix(word, []byte(s.from)) {
			return append(bytes.Clone(word[:len(word)-len(s.from)]), s.to...)
		}
	}
	return word
}

// variantSpelling returns the canonical spelling of a word if it differs from the word, otherwise nil.
func (l *language) variantSpelling(word []byte) []byte {
	if canonical := l.canonicalSpelling(word); !bytes.Equal(canonical, word) {
		return canonical
	}
	return nil
}

// numerals maps number words to the other notations of the same number.
var numerals = func() map[string][][]byte {
	same := map[string][][]byte{}
	for _, line := range []string{
		"1 i one", "2 ii two", "3 iii three", "4 iv four", "5 v five", "6 vi six", "7 vii seven", "8 viii eight", "9 ix nine",
		"10 x ten", "11 xi eleven", "12 xii twelve", "1st first", "2nd second", "3rd third", "4th fourth", "5th fifth", "6th sixth",
	} {
		words := bytes.Fields([]byte(line))
		for i, word := range words {
			for j, other := range words {
				if i != j {
					same[string(word)] = append(same[string(word)], other)
				}
			}
		}
	}
	return same
}()

// fit classifies how a word in a text matches a word in the filter.
type fit uint8

const (
	fitWholeWord fit = iota // the same word or an inflection
	fitPrefix               // a prefix, or a word with the same stem
	fitNone
)

// queryWord is a word to search for, together with equivalent forms.
type queryWord struct {
	word              []byte
	numberNotations   [][]byte // the same number in other notations
	canonicalSpelling []byte
	stem              []byte // nil if inflections do not match
	matchesPrefix     bool   // the word also matches as a prefix
	isJoined          bool   // joined words of a term, which do not match in the middle of words
	language          *language
}

func (l *language) newQueryWord(word []byte, matchesPrefix bool) queryWord {
	return queryWord{word: word, numberNotations: numerals[string(word)], canonicalSpelling: l.canonicalSpelling(word), stem: l.stem(word), matchesPrefix: matchesPrefix, language: l}
}

// fit returns how a word in a text matches. [Index.resolve] returns the same result for all words of an index.
func (w *queryWord) fit(candidate []byte) fit {
	if w.rulesOut(candidate) {
		return fitNone
	}
	if bytes.Equal(candidate, w.word) || bytes.Equal(candidate, w.canonicalSpelling) {
		return fitWholeWord
	}
	for _, same := range w.numberNotations {
		if bytes.Equal(candidate, same) {
			return fitWholeWord
		}
	}
	spelled := candidate
	if len(w.word) >= minStemmedLength {
		spelled = w.language.canonicalSpelling(candidate)
	}
	if bytes.Equal(spelled, w.canonicalSpelling) {
		return fitWholeWord
	}
	sameStem := w.hasSameStem(candidate)
	switch {
	case sameStem && isInflection(candidate, w.word):
		return fitWholeWord
	case !w.matchesPrefix:
		return fitNone
	case sameStem || bytes.HasPrefix(candidate, w.word) || bytes.HasPrefix(candidate, w.canonicalSpelling) || bytes.HasPrefix(spelled, w.canonicalSpelling):
		return fitPrefix
	}
	return fitNone
}

// rulesOut reports whether the first letter is enough to exclude a match. Spelling variants have the same first letter, except
// for ae, oe and ue.
func (w *queryWord) rulesOut(candidate []byte) bool {
	first := candidate[0]
	return w.numberNotations == nil && first != w.word[0] && first != w.canonicalSpelling[0] && (len(candidate) < 2 || candidate[1] != 'e')
}

// hasSameStem reports whether candidate has the same stem.
func (w *queryWord) hasSameStem(candidate []byte) bool {
	return w.stem != nil && bytes.HasPrefix(candidate, w.stem[:len(w.stem)-1]) && bytes.Equal(w.language.stem(candidate), w.stem)
}

// isInflection reports whether one of two words with the same stem is a prefix of the other. Fractures therefore matches
// fracture as a whole word, but hypertensive does not match hypertension as a whole word.
func isInflection(a, b []byte) bool { return bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a) }

// isLong reports whether the word is allowed to match in the middle of words.
func (w *queryWord) isLong() bool {
	return w.matchesPrefix && !w.isJoined && countLetters(w.word) >= minInfixLength
}

// minInfixLength is the minimum length, in letters, of words that match in the middle of words.
const minInfixLength = 5

// countLetters returns the number of letters and digits in a word.
func countLetters(word []byte) int { return utf8.RuneCount(word) }
