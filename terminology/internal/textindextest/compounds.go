package textindextest

import (
	"regexp"
	"slices"
	"strings"
)

// plainElements are what may stand between the parts of a German compound, or end it.
var plainElements = []string{"", "s", "n", "e", "es", "en", "er"}

// plainLetters are those of a word that may be divided.
var plainLetters = regexp.MustCompile(`^[a-z]{4,64}$`)

// read reads the words of a corpus into a dictionary, by the letter of the rule.
func (l *plainLanguage) read(d Documents) {
	if !l.compounds {
		return
	}
	l.dictionary, l.beginning, l.divided = map[string]int{}, map[string]int{}, map[string][]plainWord{}
	words := map[string]bool{}
	for i := range d {
		for _, s := range plainSpotsOf(d[i]) {
			if plainLetters.MatchString(s.word) {
				words[s.word] = true
			}
		}
	}
	for word := range words {
		for _, e := range plainElements {
			if form, ok := strings.CutSuffix(word, e); ok && len(form) >= 4 {
				l.dictionary[form]++
			}
		}
	}
	for word := range words {
		for at := 4; at <= len(word)-4; at++ {
			if l.ends(word[at:]) {
				l.beginning[word[:at]]++
			}
		}
	}
}

// ends reports whether a compound may end so.
func (l *plainLanguage) ends(rest string) bool {
	return slices.ContainsFunc(plainElements, func(e string) bool {
		form, ok := strings.CutSuffix(rest, e)
		return ok && len(form) >= 4 && l.dictionary[form] > 0
	})
}

// division divides a word from left to right, each part as long as can be; nil if it is impossible.
func (l *plainLanguage) division(word string, whole bool) []string {
	if !whole && l.ends(word) {
		return []string{word}
	}
	for at := len(word) - 4; at >= 4; at-- {
		for _, e := range plainElements {
			rest, ok := strings.CutPrefix(word[at:], e)
			if !ok || len(rest) < 4 || l.dictionary[word[:at]] == 0 && l.beginning[word[:at]] < 2 {
				continue
			}
			if parts := l.division(rest, false); parts != nil {
				return append([]string{word[:at]}, parts...)
			}
		}
	}
	return nil
}

// parts returns the parts of a word, and those of its parts, with whether each begins the word.
func (l *plainLanguage) parts(word string, first bool) (all []plainWord) {
	if !l.compounds || !plainLetters.MatchString(word) {
		return nil
	}
	for _, part := range l.division(word, true) {
		all = append(append(all, plainWord{part, first}), l.parts(part, first)...)
		first = false
	}
	return all
}

// withParts adds the parts of words.
func (l *plainLanguage) withParts(spots []plainWord) []plainWord {
	for _, s := range spots {
		parts, ok := l.divided[s.word]
		if !ok && l.compounds {
			parts = l.parts(s.word, true)
			l.divided[s.word] = parts
		}
		for _, p := range parts {
			spots = append(spots, plainWord{p.word, p.head && s.head})
		}
	}
	return spots
}
