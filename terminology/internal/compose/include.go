package compose

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// validate checks what R4 demands of an include (invariants vsd-1 to vsd-3).
func (c *Evaluator) validate(set *definitions.ConceptSet) error {
	vs := c.Path[len(c.Path)-1]
	among := c.rules.Versions.Cost() + len(c.library.Systems.Versions(set.System)) + vs.SumOfContainers(func(vs *definitions.ValueSet) int { return len(vs.CodeSystems) })
	if err := c.spend(1 + among); err != nil {
		return err
	}
	name := vs.Canonical()
	switch {
	case set.System == "" && len(set.ValueSets) == 0:
		return outcome.Unprocessable("invalid", "value set %s has an include with neither system nor valueSet", name)
	case set.System == "" && (set.Enumerated || len(set.Filters) > 0):
		return outcome.Unprocessable("invalid", "value set %s has an include with concept or filter but no system", name)
	case set.Enumerated && len(set.Filters) > 0:
		return outcome.Unprocessable("invalid", "value set %s has an include with both concept and filter", name)
	case strings.HasPrefix(set.System, "#") && c.library.Systems.ContainedCodeSystem(vs, set.System, "") == definitions.None:
		return outcome.Incomplete("not-found", "value set %s includes the code system %s, which it does not contain", name, set.System)
	}
	return nil
}

// fromSystem evaluates an include without its value sets.
func (c *Evaluator) fromSystem(set *definitions.ConceptSet) ([]definitions.Entry, error) {
	index, version, use, err := c.codeSystem(set)
	if err != nil || !use {
		return nil, err
	}
	var cs *definitions.CodeSystem // nil: its concepts are not here
	if index != definitions.None && c.library.Systems.CodeSystems[index].Content.HasConcepts() {
		cs = c.library.Systems.CodeSystems[index]
		if err := cs.Usable("code system"); err != nil {
			return nil, err
		}
		definitions.AddTo(&c.used.CodeSystems, index)
	}
	if err := c.spend(len(c.used.CodeSystems) / budget.PlainBytes); err != nil {
		return nil, err
	}
	switch {
	case c.Probe != nil:
		return c.tested(set, cs, index)
	case set.Enumerated:
		if cs == nil {
			definitions.AddTo(&c.used.Unchecked, outcome.Canonical(set.System, version))
		}
		return c.listed(set, cs, index)
	case cs == nil:
		return nil, c.library.Systems.MissingCodeSystem(set.System, version)
	case cs.Concepts.List == nil, cs.Common != "" && (c.among != nil || len(set.ValueSets) > 0):
		g := grammarInclude{evaluator: c, set: set, index: index, cs: cs}
		return g.entries()
	}
	return c.fromList(set, index)
}

// fromList returns the concepts that an include selects of those that a code system lists.
func (c *Evaluator) fromList(set *definitions.ConceptSet, index uint32) ([]definitions.Entry, error) {
	cs := c.library.Systems.CodeSystems[index]
	if cs.Common != "" {
		definitions.AddTo(&c.used.Based, Basis{CodeSystem: index})
	}
	entries, err := c.selected(set, index)
	if err != nil || !c.hidesUserAssigned(set, cs) {
		return entries, err
	}
	definitions.AddTo(&c.used.Unlisted, index)
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool {
		_, _, flags := cs.Concepts.Concept(codesystem.At(e.Concept))
		return flags&codesystem.FlagUserAssigned != 0
	}), c.spend(len(entries))
}

// hidesUserAssigned reports whether an include leaves out user-assigned codes: they are valid, but nothing to choose from
// before somebody gives them a meaning. A filter may select them, and codes that another list has are looked for among them.
func (c *Evaluator) hidesUserAssigned(set *definitions.ConceptSet, cs *definitions.CodeSystem) bool {
	if !slices.ContainsFunc(cs.Concepts.Filters.Properties(), func(p codesystem.Property) bool { return p.Is("user-assigned") }) {
		return false
	}
	if c.among != nil {
		c.used.relative = true
		return false
	}
	return len(set.ValueSets) == 0 && !slices.ContainsFunc(set.Filters, func(f definitions.Filter) bool { return f.Property == "user-assigned" })
}

// selected returns the concepts that a code system lists, or those that meet the filters of an include.
func (c *Evaluator) selected(set *definitions.ConceptSet, index uint32) ([]definitions.Entry, error) {
	cs := c.library.Systems.CodeSystems[index]
	if len(set.Filters) > 0 {
		return c.filters.entries(cs, index, set.Filters)
	}
	entries := make([]definitions.Entry, cs.Concepts.Len())
	for concept := range entries {
		entries[concept] = definitions.Entry{CodeSystem: index, Concept: uint32(concept)}
	}
	return entries, nil
}

// entries returns the concepts that meet the filters of an include, in the order of the code system.
func (fs *filters) entries(cs *definitions.CodeSystem, index uint32, list []definitions.Filter) ([]definitions.Entry, error) {
	selected, err := fs.all(cs, list)
	if err != nil {
		return nil, err
	}
	entries := make([]definitions.Entry, 0, selected.Count())
	selected.Each(func(concept uint32) {
		entries = append(entries, definitions.Entry{CodeSystem: index, Concept: concept})
	})
	return entries, nil
}

// listed returns the concepts that an include lists, without those that a complete code system does not have.
func (c *Evaluator) listed(set *definitions.ConceptSet, cs *definitions.CodeSystem, index uint32) ([]definitions.Entry, error) {
	if cs != nil && cs.Concepts.List == nil {
		if err := c.spend(int(set.Last-set.First) * parseSteps); err != nil {
			return nil, err
		}
	}
	entries := make([]definitions.Entry, 0, set.Last-set.First)
	for row := set.First; row < set.Last; row++ {
		e := definitions.Entry{CodeSystem: index, Concept: definitions.None, Listed: row}
		if cs != nil {
			table, at := c.library.Row(row)
			if c, ok := cs.Concepts.Locate(table.Texts.At(table.Code[at])); ok {
				e.Concept = cs.Number(c)
			} else if cs.IsWhole() && !set.Expanded {
				continue
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseSteps is the cost of a code that a grammar reads, several times, until it is shown.
const parseSteps = 100
