package terminology

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// filtered evaluates compose.include.filter: the concepts that meet all filters, in the order of the code system.
func (c *composer) filtered(set *conceptSet, index uint32) ([]entry, error) {
	cs := c.library.codeSystems[index]
	if cs.concepts.List == nil {
		return nil, cs.notListed()
	}
	var selected bitset.Set
	for i, f := range set.filters {
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
	entries := make([]entry, 0, selected.Count())
	selected.Each(func(concept uint32) {
		entries = append(entries, entry{codeSystem: index, concept: concept})
	})
	return entries, nil
}

// matching returns the concepts that meet a filter.
func (c *composer) matching(cs *codeSystem, f filter) (bitset.Set, error) {
	if f.isHierarchical() {
		other, err := cs.related(f)
		if err != nil {
			return nil, err
		}
		return c.byHierarchy(cs, f.op, other.Number)
	}
	test, err := c.condition(cs, f)
	if err != nil {
		return nil, err
	}
	matching := bitset.New(cs.concepts.Len())
	for concept := range uint32(cs.concepts.Len()) {
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

// hierarchical are the operators that follow the hierarchy instead of testing each concept.
var hierarchical = []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}

func (f filter) isHierarchical() bool { return slices.Contains(hierarchical, f.op) }

func (cs *codeSystem) noValue(f filter) error {
	e := issue(http.StatusUnprocessableEntity, "invalid", "vs-invalid", "UNABLE_TO_HANDLE_SYSTEM_FILTER_WITH_NO_VALUE",
		fmt.Sprintf("The system %s filter with property = %s, op = %s has no value", cs.url, f.property, f.op))
	e.Expression = []string{""} // until it is located
	return e
}

// related returns the concept that a hierarchical filter names.
func (cs *codeSystem) related(f filter) (c codesystem.Concept, err error) {
	if f.value == "" {
		return c, cs.noValue(f)
	}
	if f.property != "concept" && f.property != "code" {
		return c, cs.unknownProperty(f)
	}
	c, ok := cs.concepts.Locate([]byte(f.value))
	if !ok {
		return c, incomplete("not-found", "code system %s has no concept %q, which a filter with op %q names", cs.canonical(), f.value, f.op)
	}
	return c, nil
}

// byHierarchy returns the concepts that are related to one in the hierarchy as an operator says.
func (c *composer) byHierarchy(cs *codeSystem, op string, concept uint32) (matching bitset.Set, err error) {
	switch op {
	case "child-of":
		matching = bitset.New(cs.concepts.Len())
		for _, child := range cs.concepts.Hierarchy.Children(concept) {
			matching.Add(child)
		}
		return matching, c.spend(cs.concepts.Len()/64 + len(cs.concepts.Hierarchy.Children(concept)))
	case "generalizes":
		matching, err = cs.concepts.Hierarchy.Above(concept, c.spend)
	default:
		matching, err = cs.concepts.Hierarchy.Below(concept, c.spend)
	}
	if err != nil {
		return nil, err
	}
	if op == "descendent-of" || op == "descendent-leaf" {
		matching.Remove(concept) // in case the hierarchy has a cycle
		if op == "descendent-leaf" {
			matching.Each(func(below uint32) {
				if len(cs.concepts.Hierarchy.Children(below)) > 0 {
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
	rest := bitset.New(cs.concepts.Len())
	for concept := range uint32(cs.concepts.Len()) {
		if !matching.Has(concept) {
			rest.Add(concept)
		}
	}
	return rest, c.spend(cs.concepts.Len())
}
