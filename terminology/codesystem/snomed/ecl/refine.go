package ecl

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// condition is a refinement whose expressions are evaluated.
type condition interface {
	// concepts returns the members of a set that satisfy the condition.
	concepts(within bitset.Set) bitset.Set

	// candidates returns a superset of the members of a set with a group that satisfies the condition.
	candidates(within bitset.Set) bitset.Set

	// inGroup reports whether the rows of a group of a concept satisfy the condition.
	inGroup(c uint32, rows []groupRow) bool
}

func (v *evaluation) condition(r refinement) condition {
	switch r := r.(type) {
	case *refinements:
		s := &conditions{v: v, isOr: r.operator == "OR"}
		for _, part := range r.parts {
			s.parts = append(s.parts, v.condition(part))
		}
		return s
	case *group:
		return &groupCondition{v: v, cardinality: r.cardinality, condition: v.condition(r.attributes)}
	case *attribute:
		a := &attributeCondition{v: v, attribute: r, isAnyType: isWildcard(r.name), isAnyValue: r.value == nil || isWildcard(r.value)}
		if !a.isAnyType {
			a.types = v.evaluate(r.name)
		}
		if r.value == nil {
			a.matchesText = concreteTest(r.operator, r.concrete)
		} else if !a.isAnyValue {
			a.values = v.evaluate(r.value)
		}
		return a
	}
	return nil
}

func isWildcard(n node) bool {
	_, ok := n.(anyConcept)
	return ok
}

// concreteTest returns the condition that a concrete value satisfies a comparison. Values of another type never match, not even with
// the operator !=.
func concreteTest(operator string, c concrete) func(value []byte) bool {
	number, isNumber := parseNumber(c.literal)
	texts := make(map[string]bool, len(c.texts))
	for _, text := range c.texts {
		texts[text] = true
	}
	return func(value []byte) bool {
		switch n, ok := parseNumber(string(value)); {
		case isNumber:
			return ok && compare(operator, cmp.Compare(n, number))
		case c.literal != "":
			return (string(value) == "true" || string(value) == "false") && (string(value) == c.literal) == (operator == "=")
		case len(value) < 2 || value[0] != '"':
			return false
		}
		return texts[string(value[1:len(value)-1])] == (operator == "=")
	}
}

// conditions is a conjunction, or a disjunction if isOr is set.
type conditions struct {
	v     *evaluation
	isOr  bool
	parts []condition
}

func (s *conditions) combine(within bitset.Set, evaluate func(condition, bitset.Set) bitset.Set) bitset.Set {
	if !s.isOr {
		for _, part := range s.parts {
			within = evaluate(part, within)
		}
		return within
	}
	result := s.v.newSet()
	for _, part := range s.parts {
		result.Union(evaluate(part, within))
	}
	return result
}

func (s *conditions) concepts(within bitset.Set) bitset.Set {
	return s.combine(within, condition.concepts)
}

func (s *conditions) candidates(within bitset.Set) bitset.Set {
	return s.combine(within, condition.candidates)
}

func (s *conditions) inGroup(c uint32, rows []groupRow) bool {
	for _, part := range s.parts {
		if part.inGroup(c, rows) == s.isOr {
			return s.isOr
		}
	}
	return !s.isOr
}

// groupRow is a row of the relationships, or of the concrete values, of a concept. Rows of the same group have the same key. Each
// row outside of groups has a key of its own.
type groupRow struct {
	key, row   uint32
	isConcrete bool
}

// groupCondition is the condition that a number of groups of a concept satisfy a condition.
type groupCondition struct {
	v           *evaluation
	cardinality cardinality
	condition   condition
}

func (g *groupCondition) inGroup(uint32, []groupRow) bool { panic("groups are not nested") }

func (g *groupCondition) candidates(bitset.Set) bitset.Set { panic("groups are not nested") }

func (g *groupCondition) concepts(within bitset.Set) bitset.Set {
	var rows []groupRow
	return g.v.counted(within, g.condition.candidates(within), g.cardinality, func(c uint32) (n uint32) {
		rows = g.rows(rows[:0], c)
		for from, to := 0, 0; from < len(rows); from = to {
			for to < len(rows) && rows[to].key == rows[from].key {
				to++
			}
			if g.condition.inGroup(c, rows[from:to]) {
				n++
			}
		}
		return n
	})
}

// counted returns the members of a set with a number of matches within a cardinality. Only candidates have matches.
func (v *evaluation) counted(within, candidates bitset.Set, c cardinality, count func(c uint32) uint32) bitset.Set {
	result := v.newSet()
	if c.min == 0 {
		result.Union(within)
		result.Subtract(candidates)
	}
	candidates.Each(func(concept uint32) {
		if c.allows(count(concept)) {
			result.Add(concept)
		}
	})
	return result
}

// rows appends the rows of a concept, sorted by group.
func (g *groupCondition) rows(rows []groupRow, c uint32) []groupRow {
	r, x := g.v.rels, g.v.values
	for row := r.From[c]; row < r.From[c+1]; row++ {
		rows = append(rows, groupRow{key: groupKey(r.Group[row], len(rows)), row: row})
	}
	from, to := x.rows(c)
	for row := from; row < to; row++ {
		rows = append(rows, groupRow{key: groupKey(x.Group[row], len(rows)), row: uint32(row), isConcrete: true})
	}
	g.v.charge(1 + len(rows)/4)
	if from < to {
		slices.SortFunc(rows, func(a, b groupRow) int { return cmp.Compare(a.key, b.key) })
	}
	return rows
}

// groupKey returns the key of a group. i is unique for rows outside of groups.
func groupKey(group uint16, i int) uint32 {
	if group > 0 {
		return uint32(group)
	}
	return 1<<16 + uint32(i)
}

// rows returns the rows of a concept.
func (x *ConcreteValues) rows(c uint32) (from, to int) {
	from, _ = slices.BinarySearch(x.Source, c)
	for to = from; to < len(x.Source) && x.Source[to] == c; to++ {
	}
	return from, to
}

// attributeCondition is the condition that a number of relationships of a concept have a type and a value.
type attributeCondition struct {
	v                     *evaluation
	attribute             *attribute
	isAnyType, isAnyValue bool
	types, values         bitset.Set
	matchesText           func(value []byte) bool // nil unless values are concrete
}

// matches reports whether the type of a relationship and the concept at its other end match.
func (a *attributeCondition) matches(row, other uint32) bool {
	return a.hasType(a.v.rels.Type[row]) && (a.isAnyValue || a.values.Has(other)) == (a.attribute.operator == "=")
}

func (a *attributeCondition) hasType(kind uint32) bool { return a.isAnyType || a.types.Has(kind) }

func (a *attributeCondition) matchesConcrete(row int) bool {
	x := a.v.values
	return a.hasType(x.Type[row]) && a.matchesText(x.Value(row))
}

func (a *attributeCondition) concepts(within bitset.Set) bitset.Set {
	candidates := a.withMatch(within)
	if a.attribute.cardinality.min == 1 && a.attribute.cardinality.max == many {
		return candidates
	}
	return a.v.counted(within, candidates, a.attribute.cardinality, a.count)
}

func (a *attributeCondition) candidates(within bitset.Set) bitset.Set {
	if a.attribute.cardinality.min == 0 {
		return within
	}
	return a.withMatch(within)
}

func (a *attributeCondition) inGroup(c uint32, rows []groupRow) bool {
	if a.attribute.reverse { // incoming relationships do not belong to groups of the concept
		return a.attribute.cardinality.allows(a.count(c))
	}
	a.v.charge(1 + len(rows)/8)
	n := uint32(0)
	for _, r := range rows {
		switch {
		case r.isConcrete != (a.matchesText != nil):
		case r.isConcrete && a.matchesConcrete(int(r.row)), !r.isConcrete && a.matches(r.row, a.v.rels.Destination[r.row]):
			n++
		}
	}
	return a.attribute.cardinality.allows(n)
}

// count returns the number of matching relationships of a concept, or of matching sources if the attribute is reversed.
func (a *attributeCondition) count(c uint32) (n uint32) {
	if a.matchesText != nil {
		from, to := a.v.values.rows(c)
		for row := from; row < to; row++ {
			if a.matchesConcrete(row) {
				n++
			}
		}
		return n
	}
	from, to := a.v.rels.rows(c, a.attribute.reverse)
	a.v.charge(1 + int(to-from)/8)
	return a.countRows(c)
}

func (a *attributeCondition) countRows(c uint32) (n uint32) {
	r, last := a.v.rels, NoConcept
	from, to := r.rows(c, a.attribute.reverse)
	for i := from; i < to; i++ {
		row, other := r.row(i, a.attribute.reverse)
		if a.matches(row, other) && (!a.attribute.reverse || other != last) {
			last = other
			n++
		}
	}
	return n
}

// rows returns the range of the outgoing or incoming relationships of a concept.
func (r *Relationships) rows(c uint32, incoming bool) (from, to uint32) {
	if incoming {
		return r.To[c], r.To[c+1]
	}
	return r.From[c], r.From[c+1]
}

// row returns the row at a position in a range, and the concept at the other end.
func (r *Relationships) row(i uint32, incoming bool) (row, other uint32) {
	if incoming {
		row = r.ByDestination[i]
		return row, r.Source[row]
	}
	return i, r.Destination[i]
}

// withMatch returns the members of a set with at least one matching relationship.
func (a *attributeCondition) withMatch(within bitset.Set) bitset.Set {
	result := a.v.newSet()
	switch {
	case a.matchesText != nil:
		a.addConcrete(result, within)
	case a.values != nil && a.attribute.operator == "=" && a.isSelective(within):
		a.addOthers(result, a.values, !a.attribute.reverse)
		result.Intersect(within)
	default:
		a.v.charge(a.rowCount(within, a.attribute.reverse) / 4)
		within.Each(func(c uint32) {
			if a.countRows(c) > 0 {
				result.Add(c)
			}
		})
	}
	return result
}

// isSelective reports whether few relationships have a value, so that reading them in random order is faster than reading the
// relationships of the members of a set.
func (a *attributeCondition) isSelective(within bitset.Set) bool {
	return 8*a.rowCount(a.values, !a.attribute.reverse) < a.rowCount(within, a.attribute.reverse)
}

func (a *attributeCondition) addConcrete(result, within bitset.Set) {
	a.v.charge(len(a.v.values.Source))
	for row, c := range a.v.values.Source {
		if within.Has(c) && a.matchesConcrete(row) {
			result.Add(c)
		}
	}
}

// addOthers adds the concepts at the other end of the relationships of a set that have the type of the attribute.
func (a *attributeCondition) addOthers(result, of bitset.Set, incoming bool) {
	a.v.charge(a.rowCount(of, incoming) / 4)
	r := a.v.rels
	of.Each(func(c uint32) {
		from, to := r.rows(c, incoming)
		for i := from; i < to; i++ {
			if row, other := r.row(i, incoming); a.hasType(r.Type[row]) {
				result.Add(other)
			}
		}
	})
}

// rowCount returns the number of relationships of the members of a set.
func (a *attributeCondition) rowCount(of bitset.Set, incoming bool) (n int) {
	offsets := a.v.rels.From
	if incoming {
		offsets = a.v.rels.To
	}
	a.v.charge(1 + len(of)/8)
	for i, word := range of {
		for ; word != 0; word &= word - 1 {
			c := i*64 + bits.TrailingZeros64(word)
			n += int(offsets[c+1] - offsets[c])
		}
	}
	return n
}

func (v *evaluation) dotted(n *dotted) bitset.Set {
	a := &attributeCondition{v: v, isAnyType: isWildcard(n.attribute)}
	operand := v.evaluate(n.operand)
	if !a.isAnyType {
		a.types = v.evaluate(n.attribute)
	}
	result := v.newSet()
	a.addOthers(result, operand, false)
	return result
}
