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
}

// segments cuts a filter into runs: the longest that there is a synonym for.
func (q plainQuery) segments() (segments []plainSegment) {
	var terms []string
	fields := slices.DeleteFunc(strings.Fields(q.filter), func(f string) bool { return len(Words(f)) == 0 })
	for i, field := range fields {
		if words := Words(field); i == len(fields)-1 || len(words) > 1 || !spoken.stops[words[0]] {
			terms = append(terms, field)
		}
	}
	for len(terms) > 0 {
		run, others := 1, []string(nil)
		for n := len(terms); n > 0 && others == nil; n-- {
			for _, s := range Synonyms {
				if sameWords(strings.Fields(s.Typed), q.asRead(Words(strings.Join(terms[:n], " ")))) {
					run, others = n, append(others, s.Other)
				}
			}
		}
		segments = append(segments, plainSegment{terms[:run], others})
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
	for _, term := range s.terms {
		best := ByWholeHead
		for _, word := range Words(term) {
			best = max(best, q.wordTier(spots, word))
		}
		if words := Words(term); len(words) > 1 {
			best = min(best, q.wordTier(spots, strings.Join(words, "")))
		}
		worst = max(worst, best)
	}
	return min(worst, s.othersTier(spots))
}

// within reports whether the long words of a filter are in the middle of words of a document.
func (q plainQuery) within(d Document) bool {
	spots := plainDocument(d)
	for _, s := range q.segments() {
		found := !slices.ContainsFunc(s.terms, func(term string) bool {
			words := Words(term)
			return slices.ContainsFunc(words, func(part string) bool { return !plainlyWithin(spots, part) }) &&
				(len(words) == 1 || plainWordTier(spots, strings.Join(words, ""), true) == None)
		})
		if !found && (s.others == nil || (plainSegment{others: s.others}).othersTier(spots) == None) {
			return false
		}
	}
	return true
}

func (s plainSegment) othersTier(spots []plainWord) Tier {
	best := None
	for _, other := range s.others {
		words := slices.DeleteFunc(Words(other), func(word string) bool { return spoken.stops[word] })
		best = min(best, plainAllTier(spots, words, false))
	}
	return best
}
