package compose

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// filtered evaluates compose.include.filter: the concepts that meet all filters, in the order of the code system.
func (c *Composer) filtered(set *definitions.ConceptSet, index uint32) ([]definitions.Entry, error) {
	cs := c.Library.Systems.CodeSystems[index]
	if cs.Concepts.List == nil {
		return nil, cs.NotListed()
	}
	var selected bitset.Set
	for i, f := range set.Filters {
		matching, err := c.matching(cs, f)
		if err != nil {
			return nil, outcome.Located(err, "filter", i)
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
func (c *Composer) matching(cs *definitions.CodeSystem, f definitions.Filter) (bitset.Set, error) {
	if f.IsHierarchical() {
		other, err := cs.Related(f)
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
func (c *Composer) byHierarchy(cs *definitions.CodeSystem, op string, concept uint32) (matching bitset.Set, err error) {
	switch op {
	case "child-of":
		matching = bitset.New(cs.Concepts.Len())
		for _, child := range cs.Concepts.Hierarchy.Children(concept) {
			matching.Add(child)
		}
		return matching, c.spend(cs.Concepts.Len()/64 + len(cs.Concepts.Hierarchy.Children(concept)))
	case "generalizes":
		matching, err = cs.Concepts.Hierarchy.Above(concept, c.spend)
	default:
		matching, err = cs.Concepts.Hierarchy.Below(concept, c.spend)
	}
	if err != nil {
		return nil, err
	}
	if op == "descendent-of" || op == "descendent-leaf" {
		matching.Remove(concept) // in case the hierarchy has a cycle
		if op == "descendent-leaf" {
			matching.Each(func(below uint32) {
				if len(cs.Concepts.Hierarchy.Children(below)) > 0 {
					matching.Remove(below)
				}
			})
		}
		return matching, nil
	}
	matching.Add(concept)
	if op != "is-not-a" {
		return matching, nil
	}
	rest := bitset.New(cs.Concepts.Len())
	for concept := range uint32(cs.Concepts.Len()) {
		if !matching.Has(concept) {
			rest.Add(concept)
		}
	}
	return rest, c.spend(cs.Concepts.Len())
}
