package textindex

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rule describes which documents match a filter and in which order. docs/concepts/search.md explains it.
const Rule = "Words are sequences of letters and digits; case, accents (NFKD) and an apostrophe before a final s are ignored. " +
	"In displays and designations, but not in codes, an upper-case letter after a lower-case letter or a digit also begins a word, " +
	"which ends where the next word begins. Hyphenated words also count as a single word. In German and Dutch, each part of a compound also counts as a word if all its parts are words. " +
	"The filter is split at spaces into terms. A concept matches if every term matches: each word of the term is a prefix of a word of " +
	"the concept's code, display or designations (those in the requested languages or without a language; all if no language is requested), " +
	"or the joined words of the term are. A word also matches its inflections, spelling variants (anaemia, anemia) and the " +
	"same number (2, II, two). Stop words before the last word are ignored. Synonyms match with their words in any order. " +
	"A filter of one letter or digit matches anywhere in the display, and nowhere else. " +
	"A filter without letters or digits matches literally in the display or code. " +
	"Order: the code equals the filter; the display equals the filter; all words are whole words in the head of a text, the part " +
	"before its first comma or stop word; all words are whole words; the display equals a synonym of words that begin with the filter; all words are prefixes in the head; all other matches. " +
	"A designation that abbreviates the display has no head, and its abbreviated words (diab for diabetes) do not count as words. " +
	"If a language is requested, texts in languages other than this one and that of the display have no head. " +
	"Among equal matches: selectable concepts; displays in the requested language; the most used concepts, where usage is known; active concepts; plain terms before variants; general before specific terms; the order of the expansion. " +
	"If nothing matches, words of five or more letters also match inside other words. If still nothing matches, words " +
	"that occur in no text are replaced by the most similar words: with one typo from five letters and two from six, except in the first letter " +
	"and in words with digits."

// Filter is a filter prepared for matching. Exactly one of symbols, letter and terms is set.
type Filter struct {
	symbols []byte // the filter, if it has neither letters nor digits
	letter  []byte // the only letter or digit in the filter
	terms   []term

	line        []byte // all words, in the format of textFolder.words
	joinedWords []byte // line without spaces
	synonyms    *Synonyms
	splitsRuns  bool                // runs with synonyms are also split into shorter runs
	corrections map[string][][]byte // corrections by misspelled word

	language       *language      // language for which prepared was built
	prepared       preparedFilter // segments and lines for language
	oneWordStorage oneWordStorage
}

// oneWordStorage is preallocated memory for filters of one word, the most frequent kind: one allocation instead of eight.
type oneWordStorage struct {
	terms        [1]term
	typedWords   [1][]byte
	lines        [1][]byte
	segments     [1]segment
	alternatives [1][]requirement
	requirements [1]requirement
	queryWords   [1]queryWord
}

// term is a part of a filter without spaces. "e11.9" is a term of two words.
type term struct {
	words  [][]byte
	joined []byte // words without spaces; nil if the term has only one word
}

// leniency is the matching mode. The strict mode is tried first.
type leniency int

const (
	strictMatch leniency = iota // words of the filter match prefixes of words
	infixMatch                  // long words in the filter also match in the middle of words
)

// NewFilter returns a filter with optional synonyms. For a blank filter, it returns nil, which matches everything. Invalid
// bytes are replaced by U+FFFD, which occurs in no text.
func NewFilter(filter string, synonyms *Synonyms) *Filter {
	filter = strings.TrimSpace(strings.ToValidUTF8(filter, "\ufffd"))
	if filter == "" {
		return nil
	}
	var f textFolder
	t := &Filter{line: bytes.Clone(f.words([]byte(filter))), synonyms: synonyms}
	t.joinedWords = appendJoined(nil, t.line)
	switch {
	case len(t.line) == 0:
		return &Filter{symbols: []byte(filter)}
	case utf8.RuneCount(t.line) == 2:
		t.letter = t.line[1:]
	default:
		t.split(&f, filter)
	}
	return t
}

func (t *Filter) split(f *textFolder, filter string) {
	if line := t.line; bytes.LastIndexByte(line, ' ') == 0 && !strings.ContainsFunc(filter, unicode.IsSpace) {
		t.terms = append(t.oneWordStorage.terms[:0], term{words: append(t.oneWordStorage.typedWords[:0], line[1:])})
		return
	}
	for field := range strings.FieldsSeq(filter) {
		line := bytes.Clone(f.words([]byte(field)))
		if len(line) == 0 {
			continue
		}
		found := term{words: appendWords(nil, line)}
		if len(found.words) > 1 {
			found.joined = appendJoined(nil, line)
		}
		t.terms = append(t.terms, found)
	}
}

func (t *Filter) onlyLetter() rune {
	r, _ := utf8.DecodeRune(t.letter)
	return r
}

// hasLongWord reports whether the filter contains a word that is long enough to match in the middle of words.
func (t *Filter) hasLongWord() bool {
	return slices.ContainsFunc(t.terms, func(t term) bool {
		return slices.ContainsFunc(t.words, func(word []byte) bool { return countLetters(word) >= minInfixLength })
	})
}

// preparedFilter is a filter prepared for a language. A document matches if it matches all segments.
type preparedFilter struct {
	segments     []segment
	lines        [][]byte // lines of words that equal the filter; for tierTerm
	synonymLines [][]byte // lines of texts found by synonym rules with typed words that begin with the filter; for tierSynonym
}

// segment is a run of terms as a list of alternatives. An alternative matches if all its requirements match.
type segment [][]requirement

// requirement matches if all of its words match, or its joined word. If run is set, this shorter run must match instead.
type requirement struct {
	words, joined []queryWord
	run           segment
}

// prepareFor returns the filter prepared for a language.
func (t *Filter) prepareFor(l *language) *preparedFilter {
	if t.language == l {
		return &t.prepared
	}
	t.language, t.prepared = l, preparedFilter{lines: append(t.oneWordStorage.lines[:0], t.line)}
	if t.synonyms == nil && len(t.terms) == 1 && t.terms[0].joined == nil {
		t.prepared.segments = t.oneWordSegments(l)
		return &t.prepared
	}
	terms := t.withoutStopWords(l)
	var keys []string
	if t.synonyms != nil {
		for _, term := range terms {
			keys = append(keys, l.normalizeKey(t.correctWords(term.words)))
		}
	}
	t.prepared.segments = t.splitSegments(l, terms, keys, maxSynonymTyped)
	if len(t.prepared.segments) == 1 {
		_, others := t.synonyms.longestRun(l, keys, maxSynonymTyped)
		for _, other := range others {
			t.prepared.lines = append(t.prepared.lines, other.line)
		}
	}
	if t.corrections == nil && len(terms) > 0 {
		var words [][]byte
		for _, term := range terms {
			words = append(words, term.words...)
		}
		t.prepared.synonymLines = t.synonyms.linesWithPrefix(l, words)
	}
	return &t.prepared
}

// oneWordSegments returns the segments of a filter that has one word and no synonyms.
func (t *Filter) oneWordSegments(l *language) []segment {
	r := &t.oneWordStorage
	words := append(r.queryWords[:0], t.newQueryWord(l, t.terms[0].words[0]))
	needs := append(r.requirements[:0], requirement{words: words})
	return append(r.segments[:0], append(r.alternatives[:0], needs))
}

// splitSegments splits terms into the longest runs of up to maxTerms terms that have synonyms, and into single terms. keys are
// the normalized terms.
func (t *Filter) splitSegments(l *language, terms []term, keys []string, maxTerms int) (segments []segment) {
	for len(terms) > 0 {
		run, others := t.synonyms.longestRun(l, keys, maxTerms)
		s := segment{t.typedRequirements(l, terms[:run], keys[:min(run, len(keys))])}
		for _, other := range others {
			s = append(s, []requirement{{words: l.newQueryWords(other.words)}})
		}
		segments = append(segments, s)
		terms, keys = terms[run:], keys[min(run, len(keys)):]
	}
	return segments
}

// typedRequirements returns the requirements of a run as typed, without the synonyms of the entire run.
func (t *Filter) typedRequirements(l *language, terms []term, keys []string) (all []requirement) {
	if !t.splitsRuns || len(terms) == 1 {
		for _, term := range terms {
			all = append(all, t.newRequirement(l, term))
		}
		return all
	}
	for _, s := range t.splitSegments(l, terms, keys, len(terms)-1) {
		if len(s) == 1 {
			all = append(all, s[0]...)
		} else {
			all = append(all, requirement{run: s})
		}
	}
	return all
}

// hasRuns reports whether synonyms exist for a run of several terms, which can then be split into shorter runs.
func (a *preparedFilter) hasRuns() bool {
	return slices.ContainsFunc(a.segments, func(s segment) bool { return len(s) > 1 && len(s[0]) > 1 })
}

// withoutStopWords returns the terms except stop words. The last term is always included.
func (t *Filter) withoutStopWords(l *language) []term {
	last := len(t.terms) - 1
	var kept []term
	for i, term := range t.terms {
		if i == last || len(term.words) > 1 || !l.stopWords[string(term.words[0])] {
			kept = append(kept, term)
		}
	}
	return kept
}

// newRequirement returns the requirement for a term.
func (t *Filter) newRequirement(l *language, term term) (n requirement) {
	for _, word := range term.words {
		n.words = append(n.words, t.newQueryWord(l, word))
	}
	if term.joined != nil {
		n.joined = []queryWord{t.newQueryWord(l, term.joined)}
		n.joined[0].isJoined = true
	}
	return n
}

// correctWords returns words after applying corrections.
func (t *Filter) correctWords(words [][]byte) [][]byte {
	if t.corrections == nil {
		return words
	}
	words = slices.Clone(words)
	for i, word := range words {
		if read := t.corrections[string(word)]; read != nil {
			words[i] = read[0]
		}
	}
	return words
}

// newQueryWord returns a query word for word, after applying corrections.
func (t *Filter) newQueryWord(l *language, word []byte) queryWord {
	if read := t.corrections[string(word)]; read != nil {
		return queryWord{word: read[0], canonicalSpelling: read[0], numberNotations: read[1:], language: l}
	}
	return l.newQueryWord(word, true)
}

func (l *language) newQueryWords(words [][]byte) []queryWord {
	all := make([]queryWord, len(words))
	for i, word := range words {
		all[i] = l.newQueryWord(word, false)
	}
	return all
}

// onlyWord returns the only word of the filter if no other requirement exists, otherwise nil.
func (a *preparedFilter) onlyWord() *queryWord {
	if len(a.segments) != 1 || len(a.segments[0]) != 1 || len(a.segments[0][0]) != 1 {
		return nil
	}
	if n := &a.segments[0][0][0]; len(n.words) == 1 && n.joined == nil && n.words[0].matchesPrefix {
		return &n.words[0]
	}
	return nil
}
