package searchparam

import "slices"

// prefix says how a number or a date is compared.
type prefix string

// prefixes are those of R4's search.
var prefixes = []string{"eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap"}

// cutPrefix splits the prefix off a value; without one it is eq.
func cutPrefix(s string) (prefix, string) {
	if len(s) > 2 && slices.Contains(prefixes, s[:2]) {
		return prefix(s[:2]), s[2:]
	}
	return "eq", s
}
