package textindextest

import (
	"slices"
	"strings"
)

// fit says how a word of a text fits one of the filter: 0 not, 1 begun, 2 whole.
func (f forms) fit(word, wanted string, begins bool) int {
	spelled := f.spelled
	if len(wanted) < 4 {
		spelled = func(word string) string { return word }
	}
	alike := f.stem(wanted) != "" && f.stem(word) == f.stem(wanted)
	switch {
	case word == wanted, word == spelled(wanted), spelled(word) == spelled(wanted), sameNumber(word, wanted):
		return 2
	case alike && (strings.HasPrefix(word, wanted) || strings.HasPrefix(wanted, word)):
		return 2
	case begins && (alike || strings.HasPrefix(word, wanted) || strings.HasPrefix(word, spelled(wanted)) || strings.HasPrefix(spelled(word), spelled(wanted))):
		return 1
	}
	return 0
}

// wordTier is the tier of a word: the best of its places.
func (f forms) wordTier(spots []plainWord, wanted string, begins bool) Tier {
	best := None
	for _, s := range spots {
		tier := []Tier{None, ByBegun, ByWhole}[f.fit(s.word, wanted, begins)]
		if tier != None && s.head {
			tier--
		}
		best = min(best, tier)
	}
	return best
}

func (f forms) allTier(spots []plainWord, words []string, begins bool) Tier {
	worst := ByWholeHead
	for _, word := range words {
		worst = max(worst, f.wordTier(spots, word, begins))
	}
	return worst
}

func (f forms) within(spots []plainWord, part string) bool {
	return slices.ContainsFunc(spots, func(s plainWord) bool {
		return f.fit(s.word, part, true) > 0 || len([]rune(part)) >= 5 && strings.Contains(s.word, part)
	})
}
