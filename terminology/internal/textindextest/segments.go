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

// Synonyms are the rules that count.
var Synonyms []Synonym

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
		if words := Words(field); i == len(fields)-1 || len(words) > 1 || !spoken.stops[words[0]] {
			terms = append(terms, field)
		}
	}
	return terms
}

// meant returns what synonyms name for words that begin so. There are few synonyms, so that there are not too many of these.
func (q plainQuery) meant() (lines []string) {
	if len(Synonyms) == 0 {
		return nil
	}
	words := Words(strings.Join(q.terms(), " "))
	if q.read != nil || len([]rune(words[len(words)-1])) < 4 {
		return nil
	}
	for _, s := range Synonyms {
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
			for _, s := range Synonyms {
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

func (q plainQuery) runTier(s plainSegment, spots []plainWord) Tier {
	worst := ByWholeHead
	for _, inner := range s.inner {
		worst = max(worst, q.runTier(inner, spots))
	}
	if s.inner == nil {
		worst = q.termTier(s.terms[0], spots)
	}
	return min(worst, s.othersTier(spots))
}

func (q plainQuery) termTier(term string, spots []plainWord) Tier {
	best := ByWholeHead
	for _, word := range Words(term) {
		best = max(best, q.wordTier(spots, word))
	}
	if words := Words(term); len(words) > 1 {
		best = min(best, q.wordTier(spots, strings.Join(words, "")))
	}
	return best
}

// within reports whether the long words of a filter are in the middle of words of a document.
func (q plainQuery) within(d Document) bool {
	spots := plainDocument(d)
	return !slices.ContainsFunc(q.segments(), func(s plainSegment) bool { return !s.within(spots) })
}

func (s plainSegment) within(spots []plainWord) bool {
	if s.othersTier(spots) != None {
		return true
	}
	if s.inner != nil {
		return !slices.ContainsFunc(s.inner, func(inner plainSegment) bool { return !inner.within(spots) })
	}
	words := Words(s.terms[0])
	return !slices.ContainsFunc(words, func(part string) bool { return !plainlyWithin(spots, part) }) ||
		len(words) > 1 && plainWordTier(spots, strings.Join(words, ""), true) != None
}

func (s plainSegment) othersTier(spots []plainWord) Tier {
	best := None
	for _, other := range s.others {
		words := slices.DeleteFunc(Words(other), func(word string) bool { return spoken.stops[word] })
		best = min(best, plainAllTier(spots, words, false))
	}
	return best
}
