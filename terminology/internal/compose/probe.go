package compose

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
)

// CheckImports returns an error if value sets import each other, whether or not the imports affect the code.
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
					continue // a missing value set matters only if its codes are needed
				}
				if err := c.CheckImports(imported, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tested returns the entry of the probe's code in the code system of an include, or nothing.
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
	case cs != nil && !e.IsKnown() && cs.Content.IsPart() && len(set.Filters) == 0:
		return []definitions.Entry{e}, nil // it may be in another fragment
	case !e.IsKnown():
		return nil, checkFilters(set, cs)
	}
	for i, filter := range set.Filters {
		holds, err := c.filters.holds(cs, at, filter)
		if err != nil {
			return nil, located(err, "filter", i)
		}
		if !holds {
			c.Probe.explain(cs, at, filter)
			return nil, nil
		}
	}
	return []definitions.Entry{e}, nil
}

// explain records why a concept does not match a filter, if its code system provides the reason.
func (p *Probe) explain(cs *definitions.CodeSystem, c codesystem.Concept, f definitions.Filter) {
	if _, property, err := valuesOf(cs, f); err == nil && property >= 0 && !isHierarchical(f) {
		if why := cs.Concepts.Explainer.Explain(c, property, f.Op, f.Value); why != "" {
			definitions.AddTo(&p.Mismatch, why)
		}
	}
}

// checkFilters returns an error for an invalid filter, which makes a value set invalid in any case.
func checkFilters(set *definitions.ConceptSet, cs *definitions.CodeSystem) error {
	for i, filter := range set.Filters {
		if filter.Value == "" && cs != nil {
			return located(noValue(cs, filter), "filter", i)
		}
	}
	return nil
}

// inList returns the entry of the probe's code in the enumerated concepts of an include, or nothing.
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
		if e.Listed = row; e.IsKnown() || cs == nil || !cs.IsComplete() || set.Expanded {
			return []definitions.Entry{e}, nil
		}
		break
	}
	return nil, nil
}

// notAmong returns the entries of the probe's code that are not excluded.
func notAmong(entries, excluded []definitions.Entry, byVersion bool) []definitions.Entry {
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool {
		return slices.ContainsFunc(excluded, func(x definitions.Entry) bool { // an enumerated code without a known concept matches any version
			return !byVersion || x.CodeSystem == e.CodeSystem || !x.IsKnown() && x.Listed != 0
		})
	})
}
