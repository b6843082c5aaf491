package textindextest

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
