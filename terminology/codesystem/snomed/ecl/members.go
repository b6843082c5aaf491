package ecl

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// memberQuery reads the rows of reference sets.
type memberQuery struct {
	v          *evaluation
	selection  *memberOf
	tests      []func(refset uint32) test[*Member] // the filters, for the rows of a reference set
	steps      int                                 // cost of testing a row
	activeOnly bool

	// hasColumn contains, by name, whether at least one of the reference sets has a column of the expression. Otherwise, the
	// expression is erroneous (section 6.1).
	hasColumn map[string]bool
}

func (v *evaluation) memberOf(n *memberOf) bitset.Set {
	result, operand, refsets := v.newSet(), v.evaluate(n.operand), v.content.Refsets()
	if !n.containing && !isWildcard(n.operand) {
		v.charge(1 + len(refsets)/8)
		refsets = slices.DeleteFunc(slices.Clone(refsets), func(refset uint32) bool { return !operand.Has(refset) })
	}
	if len(refsets) == 0 {
		return result
	}
	q := newMemberQuery(v, n)
	for _, refset := range refsets {
		if !n.containing {
			q.addMembers(result, refset)
		} else if q.hasMember(refset, operand) {
			result.Add(refset)
		}
	}
	for name, ok := range q.hasColumn {
		if !ok {
			v.fail("the reference sets have no column %s", name)
		}
	}
	return result
}

func newMemberQuery(v *evaluation, n *memberOf) *memberQuery {
	q := &memberQuery{v: v, selection: n, steps: 1, activeOnly: true, hasColumn: make(map[string]bool)}
	for _, criteria := range n.filters {
		q.steps += testSteps(criteria)
		q.activeOnly = q.activeOnly && !hasActiveCriterion(criteria)
		for i := range criteria {
			q.tests = append(q.tests, q.memberTest(&criteria[i]))
		}
	}
	return q
}

// members returns the concepts of the active rows of a reference set.
func (q *memberQuery) members(refset uint32) []uint32 {
	members := q.v.content.Members(refset)
	q.v.charge(1 + len(members)/16)
	return members
}

// addMembers adds the selected column of the rows that match all filters.
func (q *memberQuery) addMembers(result bitset.Set, refset uint32) {
	fields := q.selection.fields
	if len(fields) == 0 && len(q.tests) == 0 {
		for _, c := range q.members(refset) {
			result.Add(c)
		}
		return
	}
	name := "referencedComponentId"
	if len(fields) > 0 && (fields[0] != "*" || len(q.v.content.MemberFields(refset)) > 0) {
		name = fields[0]
	}
	if len(fields) > 1 || name == "*" {
		q.v.fail("a value set has concepts, not rows: select one column of the reference sets")
	}
	value := q.column(refset, name)
	q.eachMember(refset, func(m *Member) bool {
		if value != nil {
			if c := q.fieldConcept(value(m)); c != NoConcept {
				result.Add(c)
			}
		}
		return true
	})
}

// hasMember reports whether a reference set has a row for one of the concepts.
func (q *memberQuery) hasMember(refset uint32, concepts bitset.Set) (found bool) {
	if len(q.tests) == 0 {
		return slices.ContainsFunc(q.members(refset), concepts.Has)
	}
	q.eachMember(refset, func(m *Member) bool {
		found = m.Component != NoConcept && concepts.Has(m.Component)
		return !found
	})
	return found
}

// eachMember calls visit with the rows of a reference set that satisfy all filters, until visit returns false.
func (q *memberQuery) eachMember(refset uint32, visit func(m *Member) bool) {
	var tests []test[*Member]
	for _, t := range q.tests {
		tests = append(tests, t(refset))
	}
	matches := all(tests)
	q.v.charge(q.steps)
	q.v.content.EachMember(refset, func(m *Member) bool {
		q.v.charge(q.steps)
		return q.activeOnly && !m.Active || !matches(m) || visit(m)
	})
}

// column returns a function for the text in a column, or nil if the reference set does not have the column.
func (q *memberQuery) column(refset uint32, name string) func(m *Member) []byte {
	i := slices.IndexFunc(q.v.content.MemberFields(refset), func(field string) bool { return strings.EqualFold(field, name) })
	isComponent := strings.EqualFold(name, "referencedComponentId")
	q.hasColumn[name] = q.hasColumn[name] || i >= 0 || isComponent
	switch {
	case i >= 0:
		return func(m *Member) []byte { return m.Fields[i] }
	case isComponent:
		return func(m *Member) []byte {
			if m.Component == NoConcept {
				return nil
			}
			return strconv.AppendUint(nil, q.v.content.ID(m.Component), 10)
		}
	}
	return nil
}

// fieldConcept returns the concept with an SCTID as text, or [NoConcept].
func (q *memberQuery) fieldConcept(text []byte) uint32 {
	if id, err := strconv.ParseUint(string(text), 10, 64); err == nil {
		if number, ok := q.v.content.Number(id); ok {
			return number
		}
	}
	return NoConcept
}

// memberTest returns the test of a criterion for the rows of a reference set.
func (q *memberQuery) memberTest(c *criterion) func(refset uint32) test[*Member] {
	if isStatus := q.v.statusTest(c); isStatus != nil {
		return func(uint32) test[*Member] {
			return func(m *Member) bool {
				return isStatus(status{active: m.Active, module: m.Module, effectiveTime: m.EffectiveTime})
			}
		}
	}
	matches := q.fieldTest(c)
	return func(refset uint32) test[*Member] {
		value := q.column(refset, c.field)
		return func(m *Member) bool { return value != nil && matches(value(m)) }
	}
}

// fieldTest returns the test of a criterion for a column of a reference set.
func (q *memberQuery) fieldTest(c *criterion) func(value []byte) bool {
	isEqual := c.operator == "="
	switch {
	case c.values != nil:
		isAny, s := isWildcard(c.values), q.v.evaluate(c.values)
		return func(value []byte) bool {
			number := q.fieldConcept(value)
			return (number != NoConcept && (isAny || s.Has(number))) == isEqual
		}
	case c.terms != nil:
		matches := anyTerm(c.terms)
		return func(value []byte) bool { return matches(value) == isEqual }
	case c.words[0] == "true" || c.words[0] == "false":
		notations := map[string][]string{"true": {"1", "true"}, "false": {"0", "false"}}[c.words[0]]
		return func(value []byte) bool { return (findWord(notations, string(value)) != "") == isEqual }
	}
	number, ok := parseNumber(c.words[0])
	if !ok {
		matches := dateTest(c)
		return func(value []byte) bool {
			date, err := strconv.ParseUint(string(value), 10, 32)
			return err == nil && matches(uint32(date))
		}
	}
	return func(value []byte) bool {
		n, ok := parseNumber("#" + string(bytes.TrimPrefix(value, []byte("#"))))
		return ok && compare(c.operator, cmp.Compare(n, number))
	}
}
