package terminology

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"strings"
)

// filtered evaluates compose.include.filter: the concepts for which every filter holds, in the order of
// the code system.
func (c *composer) filtered(set *conceptSet, index uint32) ([]entry, error) {
	cs := c.library.codeSystems[index]
	var selected bitset
	for i, f := range set.filters {
		matching, err := c.filter(cs, f)
		if err != nil {
			return nil, inFilter(err, i)
		}
		if selected == nil {
			selected = matching
			continue
		}
		for i := range selected {
			selected[i] &= matching[i]
		}
	}
	entries := make([]entry, 0, selected.count())
	selected.each(func(concept uint32) {
		entries = append(entries, entry{codeSystem: index, concept: concept})
	})
	return entries, nil
}

// filter returns the concepts for which a filter holds, unless it is too costly to find them.
func (c *composer) filter(cs *codeSystem, f filter) (bitset, error) {
	if f.isHierarchical() {
		matching, err := cs.filter(f)
		if err != nil {
			return nil, err
		}
		return matching, c.spend(matching.count())
	}
	each := 1
	if f.op == "regex" {
		n := regexStates(f.value)
		if n > c.library.maxRegexStates {
			return nil, issue(http.StatusUnprocessableEntity, "too-costly", "", "", fmt.Sprintf(
				"the regex in a filter on %s of code system %s is too large: it takes some %d states, more than %d; shorten it, or lower its repetitions",
				f.property, cs.canonical(), n, c.library.maxRegexStates))
		}
		each = max(1, n) // a value takes time in proportion to them
	}
	if err := c.spend(each * cs.len()); err != nil {
		return nil, err
	}
	return cs.filter(f)
}

// isHierarchical reports whether a filter follows the hierarchy, and does not look at each
// concept.
func (f filter) isHierarchical() bool {
	switch f.op {
	case "is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes":
		return true
	}
	return false
}

// regexStates returns about how many states the automaton for a regex has, or 0 where it is no regex. It
// is worked out before the automaton is made, which may take a hundred megabytes.
func regexStates(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return statesOf(parsed)
}

// statesOf returns how many states a part of a regex makes. The parser has bounded the repetitions within each
// other, so that the product fits.
func statesOf(part *syntax.Regexp) int {
	n := 0
	for _, sub := range part.Sub {
		n += statesOf(sub)
	}
	switch part.Op {
	case syntax.OpLiteral:
		return len(part.Rune)
	case syntax.OpConcat:
		return n
	case syntax.OpRepeat:
		return n * max(1, part.Min, part.Max)
	}
	return n + 1
}

// inFilter says in which filter a fault is, where it is one of the filter itself.
func inFilter(err error, i int) error {
	var e *Error
	if errors.As(err, &e) && len(e.Expression) == 1 && e.Expression[0] == "" {
		e.Expression[0] = fmt.Sprintf("filter[%d]", i)
	}
	return err
}

// filter returns the concepts for which a filter holds.
func (cs *codeSystem) filter(f filter) (bitset, error) {
	if f.value == "" {
		e := issue(http.StatusUnprocessableEntity, "invalid", "vs-invalid", "UNABLE_TO_HANDLE_SYSTEM_FILTER_WITH_NO_VALUE",
			fmt.Sprintf("The system %s filter with property = %s, op = %s has no value", cs.url, f.property, f.op))
		e.Expression = []string{""}
		return nil, e
	}
	if f.isHierarchical() {
		return cs.byHierarchy(f)
	}
	switch f.op {
	case "=":
		return cs.byProperty(f, func(value []byte) bool { return string(value) == f.value })
	case "in", "not-in":
		matching, err := cs.byProperty(f, memberOf(f.value))
		if err != nil || f.op == "in" {
			return matching, err
		}
		return cs.complement(matching), nil
	case "regex":
		return cs.byRegex(f)
	case "exists":
		return cs.byExistence(f)
	}
	return nil, incomplete("not-supported", "the filter operator %q on %s of code system %s is not supported", f.op, f.property, cs.canonical())
}

// byHierarchy evaluates the operators that compare a concept with another in the hierarchy.
func (cs *codeSystem) byHierarchy(f filter) (bitset, error) {
	if f.property != "concept" && f.property != "code" {
		return nil, cs.unknownProperty(f)
	}
	concept, ok := cs.concept([]byte(f.value))
	if !ok {
		return nil, incomplete("not-found", "code system %s has no concept %q, which a filter with op %q names", cs.canonical(), f.value, f.op)
	}
	var matching bitset
	switch f.op {
	case "child-of":
		matching = newBitset(cs.len())
		for _, child := range cs.children.of(concept) {
			matching.add(child)
		}
		return matching, nil
	case "generalizes":
		matching = cs.parents.closure(cs.len(), concept)
	default:
		matching = cs.children.closure(cs.len(), concept)
	}
	if f.op == "descendent-of" || f.op == "descendent-leaf" {
		matching.remove(concept) // it is there if the hierarchy has a cycle
		if f.op == "descendent-leaf" {
			matching.each(func(below uint32) {
				if len(cs.children.of(below)) > 0 {
					matching.remove(below)
				}
			})
		}
		return matching, nil
	}
	matching.add(concept)
	if f.op == "is-not-a" {
		return cs.complement(matching), nil
	}
	return matching, nil
}

// complement returns all concepts that are not in a set.
func (cs *codeSystem) complement(of bitset) bitset {
	rest := newBitset(cs.len())
	for concept := range uint32(cs.len()) {
		if !of.has(concept) {
			rest.add(concept)
		}
	}
	return rest
}

// memberOf tests whether a value is in a list with commas between its members.
func memberOf(list string) func(value []byte) bool {
	members := make(map[string]bool)
	for _, member := range strings.Split(list, ",") {
		members[strings.TrimSpace(member)] = true
	}
	return func(value []byte) bool { return members[string(value)] }
}

// byRegex evaluates op regex: the whole value must match (R4 §4.9.5.3).
func (cs *codeSystem) byRegex(f filter) (bitset, error) {
	var expression *regexp.Regexp
	_, err := syntax.Parse(f.value, syntax.Perl) // alone first: it could close the brackets that it is put into
	if err == nil {
		expression, err = regexp.Compile(`\A(?:` + f.value + `)\z`)
	}
	if err != nil {
		return nil, &Error{
			Status: http.StatusUnprocessableEntity, Code: "invalid", Err: fmt.Errorf("filter: %w", err),
			Text: fmt.Sprintf("the regex %q in a filter on %s of code system %s is wrong: %v", f.value, f.property, cs.canonical(), err),
		}
	}
	return cs.byProperty(f, expression.Match)
}

// byExistence evaluates op exists: whether there is a value at all, or, with value false, none.
func (cs *codeSystem) byExistence(f filter) (bitset, error) {
	matching, err := cs.byProperty(f, func([]byte) bool { return true })
	switch {
	case err != nil:
		return nil, err
	case f.value == "true":
		return matching, nil
	case f.value == "false":
		return cs.complement(matching), nil
	}
	return nil, unprocessable("invalid", "the filter on %s of code system %s with op exists has the value %q, not true or false", f.property, cs.canonical(), f.value)
}

// byProperty returns the concepts that have at least one value of the filter's property for which match
// holds.
func (cs *codeSystem) byProperty(f filter, match func(value []byte) bool) (bitset, error) {
	eachValue, err := cs.valuesOf(f)
	if err != nil {
		return nil, err
	}
	matching := newBitset(cs.len())
	for concept := range uint32(cs.len()) {
		eachValue(concept, func(value []byte) bool {
			if match(value) {
				matching.add(concept)
			}
			return !matching.has(concept)
		})
	}
	return matching, nil
}

// valueVisitor calls visit with a concept's values of some property until visit returns false.
type valueVisitor func(concept uint32, visit func(value []byte) bool)

// valuesOf returns how to get the values of a filter's property: one that every concept has, one of the
// hierarchy, or one that the code system defines.
func (cs *codeSystem) valuesOf(f filter) (valueVisitor, error) {
	switch f.property {
	case "concept", "code":
		return func(concept uint32, visit func([]byte) bool) { visit(cs.codeOf(concept)) }, nil
	case "display":
		return func(concept uint32, visit func([]byte) bool) {
			if display := cs.displayOf(concept); display != nil {
				visit(display)
			}
		}, nil
	case "parent":
		return cs.relatedCodes(cs.parents), nil
	case "child":
		return cs.relatedCodes(cs.children), nil
	}
	property, ok := cs.propertyIndex(f.property)
	if !ok {
		return nil, cs.unknownProperty(f)
	}
	return func(concept uint32, visit func([]byte) bool) { cs.eachValue(concept, property, visit) }, nil
}

// relatedCodes visits the codes of the concepts that are related to one.
func (cs *codeSystem) relatedCodes(r relation) valueVisitor {
	return func(concept uint32, visit func([]byte) bool) {
		for _, other := range r.of(concept) {
			if !visit(cs.codeOf(other)) {
				return
			}
		}
	}
}

// unknownProperty is the error for a filter on a property that cannot be judged.
func (cs *codeSystem) unknownProperty(f filter) error {
	return incomplete("not-supported", "code system %s has no property %q that a filter with op %q could use", cs.canonical(), f.property, f.op)
}
