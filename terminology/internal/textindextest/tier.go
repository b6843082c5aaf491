package textindextest

import (
	"slices"
	"strings"
)

// Tier is how well a document matches, as [github.com/caddy-fhir/caddy-fhir/terminology/textindex.Rule] has it: the
// lower, the better.
type Tier uint8

// The tiers, in the order of the rule.
const (
	ByCode Tier = iota
	ByTerm
	ByWholeHead
	ByWhole
	ByMeant
	ByBegunHead
	ByBegun
	Lenient
	None
)

// TierOf returns the tier of a document for a filter that is not corrected, if no other document has a better one.
func TierOf(d Document, filter string) Tier {
	q := plainQuery{filter: strings.ToValidUTF8(filter, "\ufffd")}
	t := q.tier(d)
	if t == None && len([]rune(strings.Join(Words(filter), ""))) > 1 && q.within(d) {
		return Lenient
	}
	return t
}

// tier is the rule by the letter, without what is lenient.
func (q plainQuery) tier(d Document) Tier {
	filter := q.filter
	display, wanted := d.shown(), Words(filter)
	joined := strings.Join(Words(d.Code), "")
	if len(wanted) == 0 {
		return plainSymbols(d.Code, display, strings.TrimSpace(filter))
	}
	tier := ByWholeHead
	if len(wanted) == 1 && len([]rune(wanted[0])) == 1 {
		tier = plainLetter(display, wanted[0])
	} else {
		for _, s := range q.segments() {
			tier = max(tier, q.runTier(s, plainDocument(d)))
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

func plainLetter(display, letter string) Tier {
	switch {
	case slices.ContainsFunc(plainSpots(display), func(s plainWord) bool { return strings.HasPrefix(s.word, letter) }):
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
