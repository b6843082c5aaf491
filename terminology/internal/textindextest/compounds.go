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

// dictionary divides the words of a corpus by each other.
type dictionary struct {
	words, beginning map[string]int
	divided          map[string][]plainWord
}

// newDictionary reads the words of documents.
func newDictionary(documents [][]plainWord) *dictionary {
	d := &dictionary{words: map[string]int{}, beginning: map[string]int{}, divided: map[string][]plainWord{}}
	words := map[string]bool{}
	for _, document := range documents {
		for _, s := range document {
			if plainLetters.MatchString(s.word) {
				words[s.word] = true
			}
		}
	}
	for word := range words {
		for _, e := range plainElements {
			if form, ok := strings.CutSuffix(word, e); ok && len(form) >= 4 {
				d.words[form]++
			}
		}
	}
	for word := range words {
		for at := 4; at <= len(word)-4; at++ {
			if d.ends(word[at:]) {
				d.beginning[word[:at]]++
			}
		}
	}
	return d
}

// ends reports whether a compound may end so.
func (d *dictionary) ends(rest string) bool {
	return slices.ContainsFunc(plainElements, func(e string) bool {
		form, ok := strings.CutSuffix(rest, e)
		return ok && len(form) >= 4 && d.words[form] > 0
	})
}

// division divides a word from left to right, each part as long as can be; nil if it is impossible.
func (d *dictionary) division(word string, whole bool) []string {
	if !whole && d.ends(word) {
		return []string{word}
	}
	for at := len(word) - 4; at >= 4; at-- {
		for _, e := range plainElements {
			rest, ok := strings.CutPrefix(word[at:], e)
			if !ok || len(rest) < 4 || d.words[word[:at]] == 0 && d.beginning[word[:at]] < 2 {
				continue
			}
			if parts := d.division(rest, false); parts != nil {
				return append([]string{word[:at]}, parts...)
			}
		}
	}
	return nil
}

// parts returns the parts of a word, and those of its parts, with whether each begins the word.
func (d *dictionary) parts(word string, first bool) (all []plainWord) {
	if !plainLetters.MatchString(word) {
		return nil
	}
	for _, part := range d.division(word, true) {
		all = append(append(all, plainWord{part, first}), d.parts(part, first)...)
		first = false
	}
	return all
}

// withParts adds the parts of words.
func (d *dictionary) withParts(spots []plainWord) []plainWord {
	for _, s := range spots {
		parts, ok := d.divided[s.word]
		if !ok {
			parts = d.parts(s.word, true)
			d.divided[s.word] = parts
		}
		for _, p := range parts {
			spots = append(spots, plainWord{p.word, p.head && s.head})
		}
	}
	return spots
}
