package compose

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
)

// CheckImports returns an error if value sets import each other in a cycle, even if the imports do not affect the probe's code.
func (c *Evaluator) CheckImports(vs *definitions.ValueSet, seen map[*definitions.ValueSet]bool) error {
	if c.current == nil {
		c.current = new(CodeList)
	}
	if err := c.pushPath(vs); err != nil {
		return err
	}
	defer func() { c.Path = c.Path[:len(c.Path)-1] }()
	seen[vs] = true
	for _, sets := range [][]definitions.ConceptSet{vs.Include, vs.Exclude} {
		for i := range sets {
			for _, reference := range sets[i].ValueSets {
				imported, err := c.importedValueSet(reference)
				if err != nil || seen[imported] && !slices.Contains(c.Path, imported) {
					continue // a missing value set is only an error if its codes are needed
				}
				if err := c.CheckImports(imported, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// probeSystem returns the entry for the probe's code in the code system of an include, or no entry.
func (c *Evaluator) probeSystem(set *definitions.ConceptSet, cs *definitions.CodeSystem, index uint32) ([]definitions.Entry, error) {
	e := definitions.Entry{CodeSystem: index, Concept: definitions.None}
	var at codesystem.Concept
	if cs != nil {
		var ok bool
		if at, ok = cs.Concepts.Locate(c.Probe.Code); ok {
			e.Concept = cs.Number(at)
		}
	}
	switch {
	case set.IsEnumerated:
		return c.probeList(set, cs, e)
	case cs != nil && !e.HasConcept() && cs.Content.IsPartial() && len(set.Filters) == 0:
		return []definitions.Entry{e}, nil // the code may be in another fragment
	case !e.HasConcept():
		return nil, checkFilters(set, cs)
	}
	for i, filter := range set.Filters {
		matches, err := c.filters.matches(cs, at, filter)
		if err != nil {
			return nil, prependExpression(err, "filter", i)
		}
		if !matches {
			c.Probe.explain(cs, at, filter)
			return nil, nil
		}
	}
	return []definitions.Entry{e}, nil
}

// explain records why a concept does not match a filter, if the code system provides a reason.
func (p *Probe) explain(cs *definitions.CodeSystem, c codesystem.Concept, f definitions.Filter) {
	if _, property, err := valuesOf(cs, f); err == nil && property >= 0 && !isHierarchical(f) {
		if why := cs.Concepts.FilterExplainer.Explain(c, property, f.Op, f.Value); why != "" {
			definitions.AppendUnique(&p.MismatchReasons, why)
		}
	}
}

// checkFilters returns an error if a filter is invalid, which makes the value set invalid whether or not the code is found.
func checkFilters(set *definitions.ConceptSet, cs *definitions.CodeSystem) error {
	for i, filter := range set.Filters {
		if filter.Value == "" && cs != nil {
			return prependExpression(newNoValueError(cs, filter), "filter", i)
		}
	}
	return nil
}

// probeList returns the entry for the probe's code among the enumerated concepts of an include, or no entry.
func (c *Evaluator) probeList(set *definitions.ConceptSet, cs *definitions.CodeSystem, e definitions.Entry) ([]definitions.Entry, error) {
	if err := c.spend(int(set.EndRow-set.FirstRow)/2 + int(set.EndRow-set.FirstRow)*len(c.Probe.Code)/budget.PlainBytesPerStep); err != nil {
		return nil, err
	}
	for row := set.FirstRow; row < set.EndRow; row++ {
		table, at := c.definitions.TableOfRow(row)
		code := table.Texts.At(table.Code[at])
		same := bytes.Equal(code, c.Probe.Code) || cs != nil && !cs.CaseSensitive && codesystem.EqualFold(code, c.Probe.Code)
		if !same {
			continue
		}
		if e.Row = row; e.HasConcept() || cs == nil || !cs.IsComplete() || set.FromStoredExpansion {
			return []definitions.Entry{e}, nil
		}
		break
	}
	return nil, nil
}

// subtractProbed returns entries without the excluded ones. All entries have the probe's code.
func subtractProbed(entries, excluded []definitions.Entry, byVersion bool) []definitions.Entry {
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool {
		return slices.ContainsFunc(excluded, func(x definitions.Entry) bool { // an enumerated code without a resolved concept excludes any version
			return !byVersion || x.CodeSystem == e.CodeSystem || !x.HasConcept() && x.Row != 0
		})
	})
}
