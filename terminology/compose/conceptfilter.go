package compose

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// filtered evaluates compose.include.filter: the concepts that meet all filters, in the order of the code system.
func (c *Evaluator) filtered(set *definitions.ConceptSet, index uint32) ([]definitions.Entry, error) {
	cs := c.library.Systems.CodeSystems[index]
	var selected bitset.Set
	for i, f := range set.Filters {
		matching, err := c.matching(cs, f)
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
	entries := make([]definitions.Entry, 0, selected.Count())
	selected.Each(func(concept uint32) {
		entries = append(entries, definitions.Entry{CodeSystem: index, Concept: concept})
	})
	return entries, nil
}

// matching returns the concepts that meet a filter.
func (c *Evaluator) matching(cs *definitions.CodeSystem, f definitions.Filter) (bitset.Set, error) {
	if isHierarchical(f) {
		other, err := namedBy(cs, f)
		if err != nil {
			return nil, err
		}
		return c.byHierarchy(cs, f.Op, other.Number)
	}
	test, err := c.condition(cs, f)
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
func (c *Evaluator) byHierarchy(cs *definitions.CodeSystem, op string, other uint32) (bitset.Set, error) {
	hierarchy, n := cs.Concepts.Hierarchy, cs.Concepts.Len()
	matching := bitset.New(n)
	if op == "child-of" {
		for _, child := range hierarchy.Children(other) {
			matching.Add(child)
		}
		return matching, c.spend(n/64 + len(hierarchy.Children(other)))
	}
	closure := hierarchy.Below
	if op == "generalizes" {
		closure = hierarchy.Above
	}
	related, err := closure(other, c.spend)
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
	return matching, c.spend(n)
}
