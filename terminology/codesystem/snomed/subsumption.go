package snomed

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// subsumption computes which concepts and expressions subsume an expression, by their definitions in the release. Its methods
// return a zero value once err is set.
type subsumption struct {
	snapshot *snapshot
	spend    func(steps int) error
	err      error // error of spend

	known map[*expression]*subsumers
	above map[uint32]bitset.Set // see aboveOrSelf
}

// subsumers are the concepts that subsume an expression.
type subsumers struct {
	set     bitset.Set
	defined []uint32 // concepts that are not ancestors of a focus concept, but have a definition that the expression satisfies

	groups []attributeGroup // groups of the expression and of its focus concepts
}

func newSubsumption(s *snapshot, spend func(steps int) error) *subsumption {
	return &subsumption{snapshot: s, spend: spend, known: make(map[*expression]*subsumers), above: make(map[uint32]bitset.Set)}
}

func (x *subsumption) charge(steps int) {
	if x.err == nil {
		x.err = x.spend(steps)
	}
}

// subsumes reports whether an expression subsumes another one. An expression that begins with <<< is a subtype of its definition,
// so that it subsumes only itself.
func (x *subsumption) subsumes(general, special *expression) bool {
	if general.isSubtype() {
		return bytes.Equal(x.snapshot.appendExpression(nil, general, false), x.snapshot.appendExpression(nil, special, false))
	}
	found := x.subsumersOf(special)
	for _, focus := range general.focus {
		if !found.set.Has(focus) {
			return false
		}
	}
	return x.coverAll(found.groups, general.groups)
}

// subsumersOf returns the concepts that subsume an expression.
func (x *subsumption) subsumersOf(e *expression) *subsumers {
	if found := x.known[e]; found != nil {
		return found
	}
	found := &subsumers{set: bitset.New(x.snapshot.table.Len()), groups: slices.Clone(e.groups)}
	x.known[e] = found
	x.charge(x.snapshot.table.Len() / 32)
	for _, focus := range e.focus {
		found.set.Union(x.aboveOrSelf(focus))
		found.groups = append(found.groups, x.snapshot.groupsOf(focus)...)
	}
	if _, ok := e.plain(); !ok { // the hierarchy contains all concepts that subsume a plain concept
		x.addDefined(found)
	}
	return found
}

// definitionSteps is the cost of comparing an expression with a definition that has similar attributes.
const definitionSteps = 100

// addDefined adds the concepts with a definition that the expression satisfies, and their ancestors.
func (x *subsumption) addDefined(found *subsumers) {
	pairs := x.pairsOf(found.groups)
	x.charge((1 + len(pairs)) * x.snapshot.table.Len() / 32)
	satisfied := bitset.New(x.snapshot.table.Len()) // defined concepts with primitive ancestors that subsume the expression
	isMissing := func(parent uint32) bool { return !found.set.Has(parent) && !satisfied.Has(parent) }
	x.snapshot.defined.Each(func(concept uint32) { // parents before children
		parents := x.snapshot.table.Parents(concept)
		if x.err != nil || len(parents) == 0 || slices.ContainsFunc(parents, isMissing) {
			return
		}
		if satisfied.Add(concept); found.set.Has(concept) || !x.hasSimilarAttributes(pairs, concept) {
			return
		}
		if x.charge(definitionSteps); x.coverAll(found.groups, x.snapshot.groupsOf(concept)) {
			found.defined = append(found.defined, concept)
			x.snapshot.climb([]uint32{concept}, func(next uint32) (isNew bool) {
				isNew = !found.set.Has(next)
				found.set.Add(next)
				return isNew
			})
		}
	})
}

// pair contains the concepts that subsume the type of an attribute, and the concepts that subsume its value.
type pair struct{ kinds, values bitset.Set }

func (x *subsumption) pairsOf(groups []attributeGroup) (pairs []pair) {
	seen := make(map[[2]uint32]bool)
	for _, g := range groups {
		for _, a := range g.attributes {
			key := [2]uint32{a.kind, a.concept}
			if a.concrete == nil && (a.concept == none || !seen[key]) {
				seen[key] = true
				pairs = append(pairs, pair{x.aboveOrSelf(a.kind), x.subsumersOfValue(&a)})
			}
		}
	}
	return pairs
}

// hasSimilarAttributes reports whether pairs contain each attribute of a concept, ignoring groups and concrete values.
func (x *subsumption) hasSimilarAttributes(pairs []pair, concept uint32) bool {
	a := &x.snapshot.attributes
	for row, end := a.rowsOf(concept); row < end; row++ {
		isCovered := func(p pair) bool { return p.kinds.Has(a.rows.Type[row]) && p.values.Has(a.rows.Destination[row]) }
		if !slices.ContainsFunc(pairs, isCovered) {
			return false
		}
	}
	return true
}

// aboveOrSelf returns the ancestors of a concept and the concept itself.
func (x *subsumption) aboveOrSelf(concept uint32) bitset.Set {
	if set := x.above[concept]; set != nil {
		return set
	}
	set := bitset.New(x.snapshot.table.Len())
	if x.err == nil {
		above, err := x.snapshot.table.Above(concept, x.spend)
		x.err = err
		set.Union(above)
	}
	x.charge(x.snapshot.table.Len() / 32)
	set.Add(concept)
	x.above[concept] = set
	return set
}

// subsumersOfValue returns the concepts that subsume the value of an attribute.
func (x *subsumption) subsumersOfValue(a *attributeValue) bitset.Set {
	if a.concept != none {
		return x.aboveOrSelf(a.concept)
	}
	return x.subsumersOf(a.nested).set
}

// coverAll reports whether each general group subsumes one of the groups.
func (x *subsumption) coverAll(groups, general []attributeGroup) bool {
	isMissing := func(g attributeGroup) bool {
		return !slices.ContainsFunc(groups, func(s attributeGroup) bool { return x.covers(&s, &g) })
	}
	return !slices.ContainsFunc(general, isMissing) && x.err == nil
}

// covers reports whether each attribute of the general group subsumes one of the special group.
func (x *subsumption) covers(special, general *attributeGroup) bool {
	x.charge(1 + len(special.attributes)*len(general.attributes)/4)
	isMissing := func(g attributeValue) bool {
		return !slices.ContainsFunc(special.attributes, func(s attributeValue) bool { return x.subsumesAttribute(&g, &s) })
	}
	return x.err == nil && !slices.ContainsFunc(general.attributes, isMissing)
}

func (x *subsumption) subsumesAttribute(general, special *attributeValue) bool {
	switch {
	case x.err != nil || !x.aboveOrSelf(special.kind).Has(general.kind):
		return false
	case general.concrete != nil || special.concrete != nil:
		return isSameValue(general.concrete, special.concrete)
	case general.concept != none:
		return x.subsumersOfValue(special).Has(general.concept)
	case special.concept != none:
		return x.subsumes(general.nested, &expression{focus: []uint32{special.concept}})
	}
	return x.subsumes(general.nested, special.nested)
}

// isSameValue reports whether concrete values are equal. Numbers may have different notations.
func isSameValue(a, b []byte) bool {
	if len(a) > 1 && len(b) > 1 && a[0] == '#' && b[0] == '#' {
		first, err1 := strconv.ParseFloat(string(a[1:]), 64)
		second, err2 := strconv.ParseFloat(string(b[1:]), 64)
		return err1 == nil && err2 == nil && first == second
	}
	return bytes.Equal(a, b)
}

// normalGroups returns the groups of an expression and its focus concepts without those that subsume another group. Single
// attributes come first.
func (x *subsumption) normalGroups(e *expression) []attributeGroup {
	var single, list []attributeGroup
	groups := x.subsumersOf(e).groups
	for i := range groups {
		isRedundant := false
		for k := range groups {
			isRedundant = isRedundant || i != k && x.covers(&groups[k], &groups[i]) && (k < i || !x.covers(&groups[i], &groups[k]))
		}
		switch {
		case isRedundant:
		case groups[i].isGroup:
			list = append(list, groups[i])
		default:
			single = append(single, groups[i])
		}
	}
	return append(single, list...)
}

// groupsOf returns the attribute groups of a concept.
func (s *snapshot) groupsOf(concept uint32) (list []attributeGroup) {
	index := make(map[uint16]int)
	add := func(group uint16, value attributeValue) {
		at, ok := index[group]
		if !ok || group == 0 {
			at = len(list)
			index[group], list = at, append(list, attributeGroup{isGroup: group > 0})
		}
		list[at].attributes = append(list[at].attributes, value)
	}
	a := &s.attributes
	for row, end := a.rowsOf(concept); row < end; row++ {
		add(a.rows.Group[row], attributeValue{kind: a.rows.Type[row], concept: a.rows.Destination[row]})
	}
	for row, end := a.concreteRowsOf(concept); row < end; row++ {
		add(a.concreteGroup[row], attributeValue{kind: a.concreteKind[row], concept: none, concrete: a.texts.At(a.concreteValue[row])})
	}
	return list
}
