package textindex

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Synonyms maps words of a filter to synonyms. A nil Synonyms is empty. Rules must not be added after the first search.
type Synonyms struct {
	rules map[*language]map[string][]phrase // by typed words, in the form of key and sortedWords
	typed map[typedLength][]typedRule       // sorted on first use
	sort  sync.Once
}

// typedLength groups rules by language and number of typed words.
type typedLength struct {
	language *language
	words    int
}

// typedRule contains the typed words of a rule and its key in rules.
type typedRule struct {
	words string // separated by spaces
	key   string
}

// phrase is the text that a rule finds.
type phrase struct {
	words [][]byte // words without stop words
	line  []byte   // all words, in the format of folder.words
}

// Limits of a rule: typed words, words of the text to find, and alternatives for the same typed words.
const (
	maxSynonymTyped = 5
	maxSynonymWords = 12
	maxSynonyms     = 16
)

// Limits of prefix matches of rules: minimum number of letters of the last typed word, and maximum number of rules.
// More matches would be too unspecific.
const (
	minPrefixLetters = 4
	maxPrefixRules   = 16
)

// Read adds one rule per line. A line "#! en" sets the language of the following rules; the default is English. In "a =
// b = c" each text also finds the others; in "a, b => c, d" each on the left also finds those on the right. Other lines
// that start with # are comments.
func (s *Synonyms) Read(r io.Reader) error {
	l := languages["en"]
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch tag, names := strings.CutPrefix(line, "#!"); {
		case names:
			l = languageOf(strings.TrimSpace(tag))
		case line == "" || line[0] == '#':
		default:
			if err := s.addLine(l, line); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	return lines.Err()
}

// Add adds a rule in a language (BCP 47; default: English): the words of typed also find other. It returns an error if
// either has no words or too many, or if typed has too many synonyms.
func (s *Synonyms) Add(tag, typed, other string) error {
	l := languageOf(tag)
	p, err := l.newPhrase(other)
	if err != nil {
		return err
	}
	return s.add(l, typed, p)
}

func (s *Synonyms) addLine(l *language, line string) error {
	left, right, ok := strings.Cut(line, "=>")
	if ok {
		return s.addEach(l, strings.Split(left, ","), strings.Split(right, ","))
	}
	same := strings.Split(line, "=")
	if len(same) < 2 {
		return fmt.Errorf("%q has neither = nor =>", line)
	}
	for i := range same {
		if err := s.addEach(l, slices.Concat(same[:i], same[i+1:]), same[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// addEach adds rules that make each text of typed also find each text of others.
func (s *Synonyms) addEach(l *language, typed, others []string) error {
	for _, other := range others {
		p, err := l.newPhrase(other) // once for all typed texts, since a list may be long
		if err != nil {
			return err
		}
		for _, one := range typed {
			if err := s.add(l, one, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// newPhrase returns the phrase for the text to find.
func (l *language) newPhrase(other string) (phrase, error) {
	var f textFolder
	p := phrase{line: bytes.Clone(f.words([]byte(other)))}
	p.words = l.withoutStopWords(appendWords(nil, p.line))
	if len(p.words) == 0 || len(p.words) > maxSynonymWords {
		return phrase{}, fmt.Errorf("%q has %d words, want 1 to %d", strings.TrimSpace(other), len(p.words), maxSynonymWords)
	}
	return p, nil
}

func (s *Synonyms) add(l *language, typed string, p phrase) error {
	var f textFolder
	left := l.withoutStopWords(appendWords(nil, bytes.Clone(f.words([]byte(typed)))))
	if len(left) == 0 || len(left) > maxSynonymTyped {
		return fmt.Errorf("%q has %d words, want 1 to %d", strings.TrimSpace(typed), len(left), maxSynonymTyped)
	}
	key := sortedWords(l.normalizeKey(left))
	if s.rules == nil {
		s.rules, s.typed = map[*language]map[string][]phrase{}, map[typedLength][]typedRule{}
	}
	if s.rules[l] == nil {
		s.rules[l] = map[string][]phrase{}
	}
	if slices.ContainsFunc(s.rules[l][key], func(have phrase) bool { return bytes.Equal(have.line, p.line) }) {
		return nil
	}
	if len(s.rules[l][key]) == maxSynonyms {
		return fmt.Errorf("%q has more than %d synonyms", strings.TrimSpace(typed), maxSynonyms)
	}
	s.rules[l][key] = append(s.rules[l][key], p)
	length := typedLength{l, len(left)}
	s.typed[length] = append(s.typed[length], typedRule{string(bytes.Join(left, []byte(" "))), key})
	return nil
}

// linesWithPrefix returns the lines of the rules with len(words) typed words that begin with the given words.
func (s *Synonyms) linesWithPrefix(l *language, words [][]byte) (lines [][]byte) {
	if s == nil || countLetters(words[len(words)-1]) < minPrefixLetters {
		return nil
	}
	seen := map[string]bool{}
	for _, rule := range s.keysWithPrefix(typedLength{l, len(words)}, string(bytes.Join(words, []byte(" ")))) {
		for _, other := range s.rules[l][rule] {
			if !seen[string(other.line)] {
				seen[string(other.line)] = true
				lines = append(lines, other.line)
			}
		}
	}
	return lines
}

// keysWithPrefix returns the keys of the rules of a length that begin with typed, or nil if there are too many.
func (s *Synonyms) keysWithPrefix(length typedLength, typed string) (keys []string) {
	s.sort.Do(func() {
		for length, all := range s.typed {
			slices.SortFunc(all, func(a, b typedRule) int { return strings.Compare(a.words, b.words) })
			s.typed[length] = slices.Compact(all) // typed words with several synonyms are repeated
		}
	})
	all := s.typed[length]
	from, _ := slices.BinarySearchFunc(all, typed, func(r typedRule, typed string) int { return strings.Compare(r.words, typed) })
	for _, rule := range all[from:] {
		switch {
		case !strings.HasPrefix(rule.words, typed):
			return keys
		case slices.Contains(keys, rule.key):
		case len(keys) == maxPrefixRules:
			return nil
		default:
			keys = append(keys, rule.key)
		}
	}
	return keys
}

// withoutStopWords returns the words without stop words, or all words if nothing else remains.
func (l *language) withoutStopWords(words [][]byte) [][]byte {
	var kept [][]byte
	for _, word := range words {
		if !l.stopWords[string(word)] {
			kept = append(kept, word)
		}
	}
	if kept == nil {
		return words
	}
	return kept
}

// normalizeKey returns the normalized words of a rule: without inflections, in canonical spelling, and with numbers as digits.
func (l *language) normalizeKey(words [][]byte) string {
	var key []byte
	for _, word := range words {
		if same := numerals[string(word)]; same != nil && same[0][0] <= '9' {
			word = same[0]
		}
		word = l.canonicalSpelling(word)
		if stem := l.stem(word); stem != nil {
			word = stem
		}
		key = append(append(key, ' '), word...)
	}
	return string(key)
}

// sortedWords returns the words of a key in alphabetical order.
func sortedWords(key string) string {
	words := strings.Split(key, " ")
	slices.Sort(words)
	return strings.Join(words, " ")
}

// longestRun returns the length of the longest run of first terms, at most maxTerms, that a rule matches, with the phrases of
// that rule. Terms are given by their keys. Without a matching rule, the run is the first term alone.
func (s *Synonyms) longestRun(l *language, keys []string, maxTerms int) (run int, others []phrase) {
	if s == nil || s.rules[l] == nil {
		return 1, nil
	}
	for run := min(len(keys), maxTerms); run > 0; run-- {
		if others := s.rules[l][sortedWords(strings.Join(keys[:run], ""))]; others != nil {
			return run, others
		}
	}
	return 1, nil
}
