package compose

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// conceptSet evaluates one include or exclude: the codes of its system, as restricted by concept or filter, that are in
// all its value sets.
func (c *Evaluator) conceptSet(set *definitions.ConceptSet) ([]definitions.Entry, error) {
	if err := c.validate(set); err != nil {
		return nil, err
	}
	var entries []definitions.Entry
	var err error
	if set.System != "" {
		if entries, err = c.fromSystem(set); err != nil || c.isSettled(entries) {
			return nil, err
		}
	}
	for i, reference := range set.ValueSets {
		imported, err := c.imported(reference)
		if err != nil {
			return nil, err
		}
		if err := c.spend(len(imported.Entries) + len(entries)); err != nil {
			return nil, err
		}
		if i == 0 && set.System == "" {
			entries = slices.Clone(imported.Entries)
			if c.Probe != nil {
				entries = entries[:min(1, len(entries))]
			}
			c.used.Versioned = c.used.Versioned || imported.Versioned
		} else {
			entries = c.within(entries, imported.Entries)
		}
		if c.isSettled(entries) {
			return nil, nil
		}
	}
	return entries, nil
}

// within returns the entries that are among others.
func (c *Evaluator) within(entries, others []definitions.Entry) []definitions.Entry {
	if c.Probe != nil && len(others) > 0 { // all are of the one code
		return entries
	}
	set := newCodeSet(c.library)
	set.addAll(others)
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool { return !set.has(e) })
}

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

// imported expands a value set that an include names.
func (c *Evaluator) imported(reference string) (*CodeList, error) {
	vs, err := c.importedValueSet(reference)
	if err != nil {
		return nil, err
	}
	if c.Probe != nil {
		definitions.AddTo(&c.Probe.Imported, vs)
		if err := c.spend(len(c.Probe.Imported) / budget.PlainBytes); err != nil {
			return nil, err
		}
	}
	x, err := c.ValueSet(vs)
	if err != nil || c.Probe != nil { // a test does not say what it used
		return x, err
	}
	c.use(x, vs)
	return x, c.spend((1 + len(x.ValueSets)) * len(c.used.ValueSets) / budget.PlainBytes)
}

// use adds an imported value set, and what it uses, to what the value set being expanded uses.
func (c *Evaluator) use(x *CodeList, vs *definitions.ValueSet) {
	if vs.Container == nil {
		definitions.AddTo(&c.used.ValueSets, vs)
	}
	definitions.AddTo(&c.used.ValueSets, x.ValueSets...)
	definitions.AddTo(&c.used.CodeSystems, x.CodeSystems...)
	definitions.AddTo(&c.used.Unchecked, x.Unchecked...)
	definitions.AddTo(&c.used.Applied, x.Applied...)
	definitions.AddTo(&c.used.wanted, vs.Supplements...)
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
	case cs.Concepts.List == nil:
		return nil, cs.NotListed()
	case len(set.Filters) > 0:
		return c.filtered(set, index)
	}
	entries := make([]definitions.Entry, cs.Concepts.Len())
	for concept := range entries {
		entries[concept] = definitions.Entry{CodeSystem: index, Concept: uint32(concept)}
	}
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
			} else if cs.IsWhole() {
				continue
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseSteps is the cost of a code that a grammar reads, several times, until it is shown.
const parseSteps = 100
