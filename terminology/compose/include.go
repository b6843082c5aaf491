package compose

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// conceptSet evaluates one include or exclude: the codes of its system, as restricted by concept or filter, that are in
// all its value sets.
func (c *Composer) conceptSet(set *definitions.ConceptSet) ([]definitions.Entry, error) {
	if err := c.validate(set); err != nil {
		return nil, err
	}
	var entries []definitions.Entry
	var err error
	if set.System != "" {
		if entries, err = c.fromSystem(set); err != nil {
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
			c.Used.Versioned = c.Used.Versioned || imported.Versioned
			continue
		}
		within := newCodeSet(c.Library)
		within.addAll(imported.Entries)
		entries = slices.DeleteFunc(entries, func(e definitions.Entry) bool { return !within.has(e) })
	}
	return entries, nil
}

// validate checks what R4 demands of an include (invariants vsd-1 to vsd-3).
func (c *Composer) validate(set *definitions.ConceptSet) error {
	vs := c.Path[len(c.Path)-1]
	among := c.Rules.Versions.Cost() + len(c.Library.Systems.Versions(set.System)) + vs.SumOfContainers(func(vs *definitions.ValueSet) int { return len(vs.CodeSystems) })
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
	case strings.HasPrefix(set.System, "#") && c.Library.Systems.ContainedCodeSystem(vs, set.System, "") == definitions.None:
		return outcome.Incomplete("not-found", "value set %s includes the code system %s, which it does not contain", name, set.System)
	}
	return nil
}

// imported expands a value set that an include names.
func (c *Composer) imported(reference string) (*CodeList, error) {
	vs, err := c.importedValueSet(reference)
	if err != nil {
		return nil, err
	}
	x, err := c.valueSet(vs)
	if err != nil {
		return nil, err
	}
	c.use(x, vs)
	return x, c.spend((1 + len(x.ValueSets)) * len(c.Used.ValueSets) / budget.PlainBytes)
}

// importedValueSet finds a value set that an include names, contained or in the library. A parameter may choose the
// version if the reference has none.
func (c *Composer) importedValueSet(reference string) (*definitions.ValueSet, error) {
	importing := c.Path[len(c.Path)-1]
	among := c.Rules.Versions.Cost() + importing.SumOfContainers(func(vs *definitions.ValueSet) int { return len(vs.Contained) })
	if err := c.spend(1 + among); err != nil {
		return nil, err
	}
	if vs, ok := importing.ContainedValueSet(reference); ok {
		return vs, nil
	}
	url, version := outcome.Split(reference)
	if version == "" {
		var rule string
		if version, rule = VersionFor(c.Rules.Versions.ValueSets, url); version != "" {
			reference = outcome.Canonical(url, version)
			c.Used.apply("default-valueset-version", rule)
		}
	}
	if definitions.IsWildcard(version) || c.Rules.Date != "" {
		if err := c.spend(len(c.Library.ValueSets.List)); err != nil {
			return nil, err
		}
	}
	if vs, ok := c.Library.AnyValueSet(reference, c.Rules.Date); ok {
		return vs, nil
	}
	id := "VS_EXP_IMPORT_UNK"
	if version != "" {
		id = "VS_EXP_IMPORT_UNK_PINNED"
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", id,
		fmt.Sprintf("value set %s, which %s imports, is not here", reference, importing.Canonical()))
	e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("ValueSet", reference, "")
	return nil, e
}

// use adds an imported value set, and what it uses, to what the value set being expanded uses.
func (c *Composer) use(x *CodeList, vs *definitions.ValueSet) {
	if vs.Container == nil {
		definitions.AddTo(&c.Used.ValueSets, vs)
	}
	definitions.AddTo(&c.Used.ValueSets, x.ValueSets...)
	definitions.AddTo(&c.Used.CodeSystems, x.CodeSystems...)
	definitions.AddTo(&c.Used.Unchecked, x.Unchecked...)
	definitions.AddTo(&c.Used.Applied, x.Applied...)
	definitions.AddTo(&c.Used.wanted, vs.Supplements...)
}

// fromSystem evaluates an include without its value sets.
func (c *Composer) fromSystem(set *definitions.ConceptSet) ([]definitions.Entry, error) {
	index, version, err := c.codeSystem(set.System, set.Version)
	if err != nil {
		return nil, err
	}
	if c.IsExcludedSystem(set.System, version, index) {
		return nil, nil
	}
	var cs *definitions.CodeSystem // nil: its concepts are not here
	if index != definitions.None && c.Library.Systems.CodeSystems[index].Content.HasConcepts() {
		cs = c.Library.Systems.CodeSystems[index]
		if err := cs.Usable("code system"); err != nil {
			return nil, err
		}
		definitions.AddTo(&c.Used.CodeSystems, index)
	}
	if err := c.spend(len(c.Used.CodeSystems) / budget.PlainBytes); err != nil {
		return nil, err
	}
	switch {
	case set.Enumerated:
		if cs == nil {
			definitions.AddTo(&c.Used.Unchecked, outcome.Canonical(set.System, version))
		}
		return c.listed(set, cs, index)
	case cs == nil:
		return nil, c.Library.Systems.MissingCodeSystem(set.System, version)
	case len(set.Filters) > 0:
		return c.filtered(set, index)
	}
	if cs.Concepts.List == nil {
		return nil, cs.NotListed()
	}
	entries := make([]definitions.Entry, cs.Concepts.Len())
	for concept := range entries {
		entries[concept] = definitions.Entry{CodeSystem: index, Concept: uint32(concept)}
	}
	return entries, nil
}

// listed returns the concepts that an include lists, without those that a complete code system does not have.
func (c *Composer) listed(set *definitions.ConceptSet, cs *definitions.CodeSystem, index uint32) ([]definitions.Entry, error) {
	if cs != nil && cs.Concepts.List == nil {
		if err := c.spend(int(set.Last-set.First) * parseSteps); err != nil {
			return nil, err
		}
	}
	entries := make([]definitions.Entry, 0, set.Last-set.First)
	for row := set.First; row < set.Last; row++ {
		e := definitions.Entry{CodeSystem: definitions.None, Concept: definitions.None, Listed: row}
		if cs != nil {
			table, at := c.Library.Rows.Row(row)
			if c, ok := cs.Concepts.Locate(table.Texts.At(table.Code[at])); ok {
				e.CodeSystem, e.Concept = index, cs.Number(c)
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
