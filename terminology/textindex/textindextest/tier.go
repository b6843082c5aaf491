package textindextest

import "strings"

// TierOf returns the tier of a document for a filter that is not corrected, if no other document has a better one.
func TierOf(d Document, filter string) Tier {
	q := plainQuery{filter: strings.ToValidUTF8(filter, "\ufffd")}
	t := q.tier(d)
	if t == None && len([]rune(strings.Join(Words(filter), ""))) > 1 && q.within(d) {
		return Lenient
	}
	return t
}
