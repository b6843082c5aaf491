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

// Synonyms are what words of a filter also stand for. A nil one holds none. No rule may be added after the first search.
type Synonyms struct {
	rules map[*language]map[string][]phrase // by the words that are typed, as key and anyOrder have them
	typed map[typedLength][]typedRule       // sorted by sort, once
	sort  sync.Once
}

// typedLength is what of rules is typed: so many words of a language.
type typedLength struct {
	language *language
	words    int
}

// typedRule is what is typed for a rule, and where the rule is.
type typedRule struct {
	words string // with spaces between
	key   string
}

// phrase is what a rule finds.
type phrase struct {
	words [][]byte // without stop words
	line  []byte   // all, as folder.words returns them
}

// Bounds on a rule: how many words it may be typed as, how many it may stand for, and how many alternatives it may have.
const (
	maxSynonymTyped = 5
	maxSynonymWords = 12
	maxSynonyms     = 16
)

// Bounds on what is begun: from how many letters of the last word on, and of how many rules at most. What begins more says too
// little.
const (
	fewestBegun = 4
	mostBegun   = 16
)

// Read adds rules, one a line, in the language of a line "#! en", or else in English. In a line "a = b = c" each stands
// for the others; in "a, b => c, d" each on the left also finds what is on the right. A line that begins with # is a
// comment.
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

// Add adds a rule in a language (BCP 47), or else in English: whoever types the words of typed also finds other. It
// fails if either has no words or too many, or if typed has too many synonyms.
func (s *Synonyms) Add(tag, typed, other string) error {
	l := languageOf(tag)
	p, err := l.phrase(other)
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

// addEach adds rules by which who types any of typed finds any of others.
func (s *Synonyms) addEach(l *language, typed, others []string) error {
	for _, other := range others {
		p, err := l.phrase(other) // once for all that is typed, as a list may have many
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

// phrase returns what a rule finds.
func (l *language) phrase(other string) (phrase, error) {
	var f folder
	p := phrase{line: bytes.Clone(f.words([]byte(other)))}
	p.words = l.withoutStops(appendWords(nil, p.line))
	if len(p.words) == 0 || len(p.words) > maxSynonymWords {
		return phrase{}, fmt.Errorf("%q has %d words, want 1 to %d", strings.TrimSpace(other), len(p.words), maxSynonymWords)
	}
	return p, nil
}

func (s *Synonyms) add(l *language, typed string, p phrase) error {
	var f folder
	left := l.withoutStops(appendWords(nil, bytes.Clone(f.words([]byte(typed)))))
	if len(left) == 0 || len(left) > maxSynonymTyped {
		return fmt.Errorf("%q has %d words, want 1 to %d", strings.TrimSpace(typed), len(left), maxSynonymTyped)
	}
	key := anyOrder(l.key(left))
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

// begun returns the lines of the rules of which the typed words are so many, and begin so.
func (s *Synonyms) begun(l *language, words [][]byte) (lines [][]byte) {
	if s == nil || letters(words[len(words)-1]) < fewestBegun {
		return nil
	}
	seen := map[string]bool{}
	for _, rule := range s.beginning(typedLength{l, len(words)}, string(bytes.Join(words, []byte(" ")))) {
		for _, other := range s.rules[l][rule] {
			if !seen[string(other.line)] {
				seen[string(other.line)] = true
				lines = append(lines, other.line)
			}
		}
	}
	return lines
}

// beginning returns the keys of the rules of a length that begin so; none if there are too many.
func (s *Synonyms) beginning(length typedLength, typed string) (keys []string) {
	s.sort.Do(func() {
		for length, all := range s.typed {
			slices.SortFunc(all, func(a, b typedRule) int { return strings.Compare(a.words, b.words) })
			s.typed[length] = slices.Compact(all) // what is typed is there once for each of what it also finds
		}
	})
	all := s.typed[length]
	from, _ := slices.BinarySearchFunc(all, typed, func(r typedRule, typed string) int { return strings.Compare(r.words, typed) })
	for _, rule := range all[from:] {
		switch {
		case !strings.HasPrefix(rule.words, typed):
			return keys
		case slices.Contains(keys, rule.key):
		case len(keys) == mostBegun:
			return nil
		default:
			keys = append(keys, rule.key)
		}
	}
	return keys
}

// withoutStops returns the words but for stop words, or all if there are no others.
func (l *language) withoutStops(words [][]byte) [][]byte {
	var kept [][]byte
	for _, word := range words {
		if !l.stops[string(word)] {
			kept = append(kept, word)
		}
	}
	if kept == nil {
		return words
	}
	return kept
}

// key returns the words that a rule is found by: without inflections, in one spelling, numbers in digits.
func (l *language) key(words [][]byte) string {
	var key []byte
	for _, word := range words {
		if same := numerals[string(word)]; same != nil && same[0][0] <= '9' {
			word = same[0]
		}
		word = l.spelled(word)
		if stem := l.stem(word); stem != nil {
			word = stem
		}
		key = append(append(key, ' '), word...)
	}
	return string(key)
}

// anyOrder returns the words of a key in the order of the alphabet.
func anyOrder(key string) string {
	words := strings.Split(key, " ")
	slices.Sort(words)
	return strings.Join(words, " ")
}

// longest returns how many of the first terms, whose keys are given, a rule is for, and what else they stand for: of the
// longest run, of at most so many, that has a rule. If none has, it is the first term alone.
func (s *Synonyms) longest(l *language, keys []string, most int) (run int, others []phrase) {
	if s == nil || s.rules[l] == nil {
		return 1, nil
	}
	for run := min(len(keys), most); run > 0; run-- {
		if others := s.rules[l][anyOrder(strings.Join(keys[:run], ""))]; others != nil {
			return run, others
		}
	}
	return 1, nil
}
