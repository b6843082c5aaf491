package compose

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// filters evaluates compose.include.filter: which concepts meet all of some filters, or whether one concept meets one.
type filters struct {
	spend       func(steps int) error
	regexStates int                      // how many a regex may have
	relatives   map[relatives]bitset.Set // of the one concept that is looked for
}

// relatives are the ancestors or descendants of the concept that is looked for.
type relatives struct {
	codeSystem *definitions.CodeSystem
	below      bool
}

// all returns the concepts that meet all filters.
func (fs *filters) all(cs *definitions.CodeSystem, list []definitions.Filter) (selected bitset.Set, err error) {
	for i, f := range list {
		matching, err := fs.matching(cs, f)
		if err != nil {
			return nil, located(err, "filter", i)
		}
		if selected == nil {
			selected = matching
			continue
		}
		for i := range selected {
			selected[i] &= matching[i]
		}
	}
	return selected, nil
}

// matching returns the concepts that meet a filter.
func (fs *filters) matching(cs *definitions.CodeSystem, f definitions.Filter) (bitset.Set, error) {
	if isHierarchical(f) {
		other, err := namedBy(cs, f)
		if err != nil {
			return nil, err
		}
		return fs.byHierarchy(cs, f.Op, other.Number)
	}
	test, err := newCondition(cs, f, fs.regexStates, fs.spend)
	if err != nil {
		return nil, err
	}
	matching := bitset.New(cs.Concepts.Len())
	for concept := range uint32(cs.Concepts.Len()) {
		holds, err := test.holds(codesystem.At(concept))
		if err != nil {
			return nil, err
		}
		if holds {
			matching.Add(concept)
		}
	}
	return matching, nil
}

// byHierarchy returns the concepts that are related to one in the hierarchy as an operator says.
func (fs *filters) byHierarchy(cs *definitions.CodeSystem, op string, other uint32) (bitset.Set, error) {
	hierarchy, n := cs.Concepts.Hierarchy, cs.Concepts.Len()
	matching := bitset.New(n)
	if op == "child-of" {
		for _, child := range hierarchy.Children(other) {
			matching.Add(child)
		}
		return matching, fs.spend(n/64 + len(hierarchy.Children(other)))
	}
	closure := hierarchy.Below
	if op == "generalizes" {
		closure = hierarchy.Above
	}
	related, err := closure(other, fs.spend)
	if err != nil {
		return nil, err
	}
	add := func(concept uint32) {
		if meets(cs, op, codesystem.At(concept), codesystem.At(other), related.Has(concept)) {
			matching.Add(concept)
		}
	}
	if op != "is-not-a" {
		related.Each(add)
		add(other)
		return matching, nil
	}
	for concept := range uint32(n) {
		add(concept)
	}
	return matching, fs.spend(n)
}

// holds reports whether a concept, which is the only one that is looked for, meets a filter.
func (fs *filters) holds(cs *definitions.CodeSystem, concept codesystem.Concept, f definitions.Filter) (bool, error) {
	test, err := fs.test(cs, f)
	if err != nil {
		return false, err
	}
	return test(concept)
}

// test returns what tells whether a concept meets a filter, without computing all concepts for which it holds. Of a code
// system with a hierarchy, only one concept may be tested.
func (fs *filters) test(cs *definitions.CodeSystem, f definitions.Filter) (func(c codesystem.Concept) (bool, error), error) {
	if !isHierarchical(f) {
		test, err := newCondition(cs, f, fs.regexStates, fs.spend)
		if err != nil {
			return nil, err
		}
		return test.holds, nil
	}
	other, err := namedBy(cs, f)
	return func(concept codesystem.Concept) (bool, error) {
		if f.Op == "child-of" {
			parents := cs.Concepts.Hierarchy.Parents(concept.Number)
			return slices.Contains(parents, other.Number), fs.spend(len(parents))
		}
		relatives, err := fs.relativesOf(cs, concept.Number, f.Op == "generalizes")
		return err == nil && meets(cs, f.Op, concept, other, relatives.Has(other.Number)), err
	}, err
}

// relativesOf returns the ancestors of the concept that is looked for, or its descendants, computed once. They are few, while
// a filter may select half of a code system.
func (fs *filters) relativesOf(cs *definitions.CodeSystem, concept uint32, below bool) (bitset.Set, error) {
	key := relatives{codeSystem: cs, below: below}
	if found, ok := fs.relatives[key]; ok {
		return found, nil
	}
	closure := cs.Concepts.Hierarchy.Above
	if below {
		closure = cs.Concepts.Hierarchy.Below
	}
	found, err := closure(concept, fs.spend)
	if err == nil {
		if fs.relatives == nil {
			fs.relatives = make(map[relatives]bitset.Set)
		}
		fs.relatives[key] = found
	}
	return found, err
}
