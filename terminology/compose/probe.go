package compose

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
)

// CheckImports fails if value sets import each other, whether or not the imports matter for the code.
func (c *Evaluator) CheckImports(vs *definitions.ValueSet, seen map[*definitions.ValueSet]bool) error {
	if c.used == nil {
		c.used = new(CodeList)
	}
	if err := c.enter(vs); err != nil {
		return err
	}
	defer func() { c.Path = c.Path[:len(c.Path)-1] }()
	seen[vs] = true
	for _, sets := range [][]definitions.ConceptSet{vs.Include, vs.Exclude} {
		for i := range sets {
			for _, reference := range sets[i].ValueSets {
				imported, err := c.importedValueSet(reference)
				if err != nil || seen[imported] && !slices.Contains(c.Path, imported) {
					continue // a value set that is missing matters only where it is needed
				}
				if err := c.CheckImports(imported, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tested returns the entry of the code in an include's code system, or none.
func (c *Evaluator) tested(set *definitions.ConceptSet, cs *definitions.CodeSystem, index uint32) ([]definitions.Entry, error) {
	e := definitions.Entry{CodeSystem: index, Concept: definitions.None}
	var at codesystem.Concept
	if cs != nil {
		var ok bool
		if at, ok = cs.Concepts.Locate(c.Probe.Code); ok {
			e.Concept = cs.Number(at)
		}
	}
	switch {
	case set.Enumerated:
		return c.inList(set, cs, e)
	case cs != nil && !e.IsKnown() && cs.Content == definitions.ContentFragment && len(set.Filters) == 0:
		return []definitions.Entry{e}, nil // it may be in another fragment
	case !e.IsKnown():
		return nil, checkFilters(set, cs)
	}
	for i, filter := range set.Filters {
		holds, err := c.holds(cs, at, filter)
		if err != nil || !holds {
			return nil, located(err, "filter", i)
		}
	}
	return []definitions.Entry{e}, nil
}

// holds reports whether a filter holds for the code's concept, without computing all concepts for which it does.
func (c *Evaluator) holds(cs *definitions.CodeSystem, concept codesystem.Concept, f definitions.Filter) (bool, error) {
	if !isHierarchical(f) {
		test, err := c.condition(cs, f)
		if err != nil {
			return false, err
		}
		return test.holds(concept)
	}
	other, err := namedBy(cs, f)
	if err != nil {
		return false, err
	}
	if f.Op == "child-of" {
		parents := cs.Concepts.Hierarchy.Parents(concept.Number)
		return slices.Contains(parents, other.Number), c.spend(len(parents))
	}
	relatives, err := c.relativesOf(cs, concept.Number, f.Op == "generalizes")
	return err == nil && meets(cs, f.Op, concept, other, relatives.Has(other.Number)), err
}

// relativesOf computes relatives once. They are few, while a filter may select half of a code system.
func (c *Evaluator) relativesOf(cs *definitions.CodeSystem, concept uint32, below bool) (bitset.Set, error) {
	key := relatives{codeSystem: cs, below: below}
	if found, ok := c.Probe.relatives[key]; ok {
		return found, nil
	}
	closure := cs.Concepts.Hierarchy.Above
	if below {
		closure = cs.Concepts.Hierarchy.Below
	}
	found, err := closure(concept, c.spend)
	if err == nil {
		if c.Probe.relatives == nil {
			c.Probe.relatives = make(map[relatives]bitset.Set)
		}
		c.Probe.relatives[key] = found
	}
	return found, err
}

// checkFilters finds a broken filter, which makes a value set invalid even if it has no code to filter.
func checkFilters(set *definitions.ConceptSet, cs *definitions.CodeSystem) error {
	for i, filter := range set.Filters {
		if filter.Value == "" && cs != nil {
			return located(noValue(cs, filter), "filter", i)
		}
	}
	return nil
}

// inList returns the entry of the code in the concepts that an include lists, or none.
func (c *Evaluator) inList(set *definitions.ConceptSet, cs *definitions.CodeSystem, e definitions.Entry) ([]definitions.Entry, error) {
	if err := c.spend(int(set.Last-set.First)/2 + int(set.Last-set.First)*len(c.Probe.Code)/budget.PlainBytes); err != nil {
		return nil, err
	}
	for row := set.First; row < set.Last; row++ {
		table, at := c.library.Row(row)
		code := table.Texts.At(table.Code[at])
		same := bytes.Equal(code, c.Probe.Code) || cs != nil && !cs.CaseSensitive && codesystem.EqualFold(code, c.Probe.Code)
		if !same {
			continue
		}
		if e.Listed = row; e.IsKnown() || cs == nil || !cs.IsWhole() {
			return []definitions.Entry{e}, nil
		}
		break
	}
	return nil, nil
}

// notAmong returns the entries of the code that are not excluded.
func (c *Evaluator) notAmong(entries, excluded []definitions.Entry) ([]definitions.Entry, error) {
	byVersion := c.used.byVersion
	entries = slices.DeleteFunc(entries, func(e definitions.Entry) bool {
		return slices.ContainsFunc(excluded, func(x definitions.Entry) bool { // a code that is only listed matches any version
			return !byVersion || x.CodeSystem == e.CodeSystem || !x.IsKnown() && x.Listed != 0
		})
	})
	return entries, c.spend(len(entries) * len(excluded) / budget.PlainBytes)
}
