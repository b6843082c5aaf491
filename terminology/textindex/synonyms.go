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

// Synonyms maps words in a filter to synonyms. nil means no synonyms. Rules must not be added after the first search.
type Synonyms struct {
	rules map[*language]map[string][]phrase // texts to find, by the typed words after normalizeKey and sortedWords
	typed map[typedLength][]typedRule       // typed words of all rules; sorted on first use
	sort  sync.Once
}

// typedLength groups rules by their language and the number of typed words.
type typedLength struct {
	language *language
	words    int
}

// typedRule contains the typed words of a rule and its key in Synonyms.rules.
type typedRule struct {
	words string // separated by spaces
	key   string
}

// phrase is the text that a rule finds.
type phrase struct {
	words [][]byte // words except stop words
	line  []byte   // all words, in the format of textFolder.words
}

// Limits of a rule: typed words, words in the text to find, and texts to find for the same typed words.
const (
	maxSynonymTyped = 5
	maxSynonymWords = 12
	maxSynonyms     = 16
)

// Limits for rules that match by prefix: the minimum number of letters in the last typed word, and the maximum number of rules.
// If more rules match, the prefix is too unspecific.
const (
	minPrefixLetters = 4
	maxPrefixRules   = 16
)

// Read adds one rule per line. A line such as "#! en" sets the language of the rules that follow; the default is English. In "a
// = b = c", each text also finds the others. In "a, b => c, d", each text on the left also finds those on the right. Other
// lines that start with # are comments.
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

// Add adds a rule for a language (BCP 47; default: English): the words of typed also find other. It returns an error if either
// text has no words or too many words, or if typed has too many synonyms.
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

// addEach adds rules so that each text in typed also finds each text in others.
func (s *Synonyms) addEach(l *language, typed, others []string) error {
	for _, other := range others {
		p, err := l.newPhrase(other) // once for all typed texts, because the list may be long
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

// newPhrase returns the phrase for a text to find. It returns an error if the text has no words or too many words.
func (l *language) newPhrase(other string) (phrase, error) {
	var f textFolder
	p := phrase{line: bytes.Clone(f.words([]byte(other)))}
	p.words = l.withoutStopWords(appendWords(nil, p.line))
	if len(p.words) == 0 || len(p.words) > maxSynonymWords {
		return phrase{}, fmt.Errorf("%q has %d words: use 1 to %d", strings.TrimSpace(other), len(p.words), maxSynonymWords)
	}
	return p, nil
}

func (s *Synonyms) add(l *language, typed string, p phrase) error {
	var f textFolder
	left := l.withoutStopWords(appendWords(nil, bytes.Clone(f.words([]byte(typed)))))
	if len(left) == 0 || len(left) > maxSynonymTyped {
		return fmt.Errorf("%q has %d words: use 1 to %d", strings.TrimSpace(typed), len(left), maxSynonymTyped)
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

// linesWithPrefix returns the lines to find for rules that have len(words) typed words and begin with the given words.
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

// keysWithPrefix returns the keys of rules that belong to length and begin with typed. It returns nil if there are too many.
func (s *Synonyms) keysWithPrefix(length typedLength, typed string) (keys []string) {
	s.sort.Do(func() {
		for length, all := range s.typed {
			slices.SortFunc(all, func(a, b typedRule) int { return strings.Compare(a.words, b.words) })
			s.typed[length] = slices.Compact(all) // typed words that have several synonyms are repeated
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

// withoutStopWords returns the words that are not stop words, or all words if there are only stop words.
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

// normalizeKey returns words in normalized form: as stems, in canonical spelling, and with numbers as digits.
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

// sortedWords returns the words of a key sorted alphabetically.
func sortedWords(key string) string {
	words := strings.Split(key, " ")
	slices.Sort(words)
	return strings.Join(words, " ")
}

// longestRun returns the length of the longest run of first terms, up to maxTerms, for which a rule exists, and the phrases
// that the rule finds. keys are the normalized terms. If there is no rule, the run is the first term.
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
