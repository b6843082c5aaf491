package textindextest

import (
	"slices"
	"strings"
)

// tier is the rule by the letter, without what is lenient.
func (q plainQuery) tier(d Document, spots []plainWord, segments []plainSegment) Tier {
	filter := q.filter
	display, wanted := d.shown(), Words(filter)
	joined := strings.Join(Words(d.Code), "")
	if len(wanted) == 0 {
		return plainSymbols(d.Code, display, strings.TrimSpace(filter))
	}
	tier := ByWholeHead
	if len(wanted) == 1 && len([]rune(wanted[0])) == 1 {
		tier = plainLetter(display, wanted[0], q.forms.language.stops)
	} else {
		for _, s := range segments {
			tier = max(tier, q.runTier(s, spots))
		}
	}
	switch {
	case tier == None:
		return None
	case joined == strings.Join(wanted, ""):
		return ByCode
	case !d.Header && slices.Contains(q.lines(), strings.Join(Words(display), " ")):
		return ByTerm
	case tier > ByMeant && !d.Header && slices.Contains(q.meant(), strings.Join(Words(display), " ")):
		return ByMeant
	}
	return tier
}

func plainLetter(display, letter string, stops map[string]bool) Tier {
	switch {
	case slices.ContainsFunc(plainSpots(display, stops), func(s plainWord) bool { return strings.HasPrefix(s.word, letter) }):
		return ByBegun
	case strings.Contains(strings.Join(Words(display), " "), letter):
		return Lenient
	}
	return None
}

// plainSymbols is tier for a filter without letter or digit.
func plainSymbols(code, display, filter string) Tier {
	switch {
	case code == filter:
		return ByCode
	case display == filter:
		return ByTerm
	case strings.HasPrefix(display, filter):
		return ByBegunHead
	case strings.Contains(display, filter) || strings.Contains(code, filter):
		return ByBegun
	default:
		return None
	}
}

func (q plainQuery) runTier(s plainSegment, spots []plainWord) Tier {
	worst := ByWholeHead
	for _, inner := range s.inner {
		worst = max(worst, q.runTier(inner, spots))
	}
	if s.inner == nil {
		worst = q.termTier(s.terms[0], spots)
	}
	return min(worst, q.othersTier(s, spots))
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
func (q plainQuery) within(spots []plainWord) bool {
	return !slices.ContainsFunc(q.segments(), func(s plainSegment) bool { return !q.segmentWithin(s, spots) })
}

func (q plainQuery) segmentWithin(s plainSegment, spots []plainWord) bool {
	if q.othersTier(s, spots) != None {
		return true
	}
	if s.inner != nil {
		return !slices.ContainsFunc(s.inner, func(inner plainSegment) bool { return !q.segmentWithin(inner, spots) })
	}
	words := Words(s.terms[0])
	return !slices.ContainsFunc(words, func(part string) bool { return !q.forms.within(spots, part) }) ||
		len(words) > 1 && q.forms.wordTier(spots, strings.Join(words, ""), true) != None
}

func (q plainQuery) othersTier(s plainSegment, spots []plainWord) Tier {
	best := None
	for _, other := range s.others {
		words := slices.DeleteFunc(Words(other), func(word string) bool { return q.forms.language.stops[word] })
		best = min(best, q.forms.allTier(spots, words, false))
	}
	return best
}

// wordTier is the tier of a word, or of the best of those it is read as.
func (q plainQuery) wordTier(spots []plainWord, word string) Tier {
	read := q.read[word]
	if read == nil {
		return q.forms.wordTier(spots, word, true)
	}
	best := None
	for _, s := range spots {
		if slices.Contains(read, s.word) || q.forms.spelled(s.word) == read[0] {
			best = min(best, map[bool]Tier{true: ByWholeHead, false: ByWhole}[s.head])
		}
	}
	return best
}

// correct reads the words that no document has as the most similar ones.
func (q *plainQuery) correct(documents [][]plainWord) {
	counts := map[string]int{}
	for _, spots := range documents {
		seen := map[string]bool{}
		for _, s := range spots {
			if !seen[s.word] {
				seen[s.word] = true
				counts[s.word]++
			}
		}
	}
	for _, typed := range Words(q.filter) {
		if read := q.forms.guesses(counts, typed); read != nil {
			if q.read == nil {
				q.read = map[string][]string{}
			}
			q.read[typed] = read
		}
	}
}
