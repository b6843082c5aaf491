package textindextest

import (
	"slices"
	"strings"
)

// Synonym is a rule.
type Synonym struct {
	// Typed are the words that are typed, without stop words.
	Typed string

	// Other are the words that are also found.
	Other string
}

// plainQuery is a filter, and what words with typos are read as.
type plainQuery struct {
	filter   string
	synonyms []Synonym
	forms    forms
	read     map[string][]string
	divided  bool // whether runs that have synonyms are also read as shorter ones
}

// plainSegment is a run of terms, and what else it stands for.
type plainSegment struct {
	terms  []string
	others []string
	inner  []plainSegment // the runs that several terms consist of
}

// segments cuts a filter into runs.
func (q plainQuery) segments() []plainSegment {
	terms := q.terms()
	return q.runs(terms, len(terms))
}

// terms are the words between spaces but for stop words before the last.
func (q plainQuery) terms() (terms []string) {
	fields := slices.DeleteFunc(strings.Fields(q.filter), func(f string) bool { return len(Words(f)) == 0 })
	for i, field := range fields {
		if words := Words(field); i == len(fields)-1 || len(words) > 1 || !q.forms.language.stops[words[0]] {
			terms = append(terms, field)
		}
	}
	return terms
}

// meant returns what synonyms name for words that begin so. There are few synonyms, so that there are not too many of these.
func (q plainQuery) meant() (lines []string) {
	if len(q.synonyms) == 0 {
		return nil
	}
	words := Words(strings.Join(q.terms(), " "))
	if q.read != nil || len([]rune(words[len(words)-1])) < 4 {
		return nil
	}
	for _, s := range q.synonyms {
		if strings.HasPrefix(s.Typed, strings.Join(words, " ")) && len(strings.Fields(s.Typed)) == len(words) {
			lines = append(lines, s.Other)
		}
	}
	return lines
}

// runs cuts terms into runs: the longest that there is a synonym for, and these into shorter ones.
func (q plainQuery) runs(terms []string, most int) (segments []plainSegment) {
	for len(terms) > 0 {
		run, others := 1, []string(nil)
		for n := min(most, len(terms)); n > 0 && others == nil; n-- {
			for _, s := range q.synonyms {
				if sameWords(strings.Fields(s.Typed), q.asRead(Words(strings.Join(terms[:n], " ")))) {
					run, others = n, append(others, s.Other)
				}
			}
		}
		s := plainSegment{terms: terms[:run], others: others}
		if run > 1 && q.divided {
			s.inner = q.runs(terms[:run], run-1)
		} else if run > 1 {
			for _, term := range terms[:run] {
				s.inner = append(s.inner, plainSegment{terms: []string{term}})
			}
		}
		segments = append(segments, s)
		terms = terms[run:]
	}
	return segments
}

// sameWords reports whether two lists have the same words, in any order.
func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// plainLines returns what a display must be to be the filter.
func (q plainQuery) lines() []string {
	lines := []string{strings.Join(Words(q.filter), " ")}
	if segments := q.segments(); len(segments) == 1 {
		lines = append(lines, segments[0].others...)
	}
	return lines
}

// asRead returns words as they are read.
func (q plainQuery) asRead(words []string) []string {
	for i, word := range words {
		if read := q.read[word]; read != nil {
			words[i] = read[0]
		}
	}
	return words
}
