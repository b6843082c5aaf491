package smart

import "strings"

// Constraint is the search that narrows the scope, as parameters in their order: a resource is within the scope if it
// matches every one of them. There are none if the scope is not narrowed. A Query that [ParseResourceScope] would refuse
// is one nameless parameter, which no resource matches.
func (s ResourceScope) Constraint() []Parameter {
	if s.Query == "" {
		return nil
	}
	list, ok := parseConstraint(s.Query)
	if !ok {
		return []Parameter{{}}
	}
	return list
}

// parseConstraint reads the query of a scope. SMART App Launch 2.2 ("Finer-grained resource constraints using search
// parameters") leaves it open, and calls modifiers, chains and _filter experimental. Here it holds only what can be told
// from a resource by itself, since it is to be judged by reading the resource.
//
// A plus is refused: in a query it is a space, in a scope nobody says.
func parseConstraint(query string) ([]Parameter, bool) {
	if hasEmptyPair(query) || strings.Contains(query, "+") {
		return nil, false
	}
	list, err := ParseParameters(query)
	if err != nil {
		return nil, false
	}
	for _, p := range list {
		if !isConstraintName(p.Name) || hasEmptyAlternative(p.Value) {
			return nil, false
		}
	}
	return list, true
}

func hasEmptyPair(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			return true
		}
	}
	return false
}

// isConstraintName reports whether a parameter can be told from a resource by itself. Plain ones can, without modifier
// and chain, and of those for all types (R4 search.html) the ones below. The others search text in ways of the server's
// own, look at other resources, or shape the result.
func isConstraintName(name string) bool {
	switch name {
	case "_id", "_lastUpdated", "_profile", "_security", "_source", "_tag", "_type":
		return true
	}
	return name[0] != '_' && !strings.ContainsAny(name, ".:")
}

// hasEmptyAlternative reports whether a comma, unless escaped by a backslash, has nothing on one side. Some servers read
// that as any value.
func hasEmptyAlternative(value string) bool {
	length := 0
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == ',' && length == 0:
			return true
		case value[i] == ',':
			length = -1
		case value[i] == '\\':
			i++
		}
		length++
	}
	return length == 0
}
