package terminology

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// conceptSet evaluates one include or exclude: the codes of its system, as restricted by concept or filter, that are in
// all its value sets.
func (c *composer) conceptSet(set *conceptSet) ([]entry, error) {
	if err := c.validate(set); err != nil {
		return nil, err
	}
	var entries []entry
	var err error
	if set.system != "" {
		if entries, err = c.fromSystem(set); err != nil {
			return nil, err
		}
	}
	for i, reference := range set.valueSets {
		imported, err := c.imported(reference)
		if err != nil {
			return nil, err
		}
		if err := c.spend(len(imported.entries) + len(entries)); err != nil {
			return nil, err
		}
		if i == 0 && set.system == "" {
			entries = slices.Clone(imported.entries)
			c.used.versioned = c.used.versioned || imported.versioned
			continue
		}
		within := newCodeSet(c.library)
		within.addAll(imported.entries)
		entries = slices.DeleteFunc(entries, func(e entry) bool { return !within.has(e) })
	}
	return entries, nil
}

// validate checks what R4 demands of an include (invariants vsd-1 to vsd-3).
func (c *composer) validate(set *conceptSet) error {
	vs := c.path[len(c.path)-1]
	among := c.rules.Versions.cost() + len(c.library.versions(set.system)) + vs.sumOfContainers(func(vs *valueSet) int { return len(vs.codeSystems) })
	if err := c.spend(1 + among); err != nil {
		return err
	}
	name := vs.canonical()
	switch {
	case set.system == "" && len(set.valueSets) == 0:
		return unprocessable("invalid", "value set %s has an include with neither system nor valueSet", name)
	case set.system == "" && (set.enumerated || len(set.filters) > 0):
		return unprocessable("invalid", "value set %s has an include with concept or filter but no system", name)
	case set.enumerated && len(set.filters) > 0:
		return unprocessable("invalid", "value set %s has an include with both concept and filter", name)
	case strings.HasPrefix(set.system, "#") && c.library.containedCodeSystem(vs, set.system, "") == none:
		return incomplete("not-found", "value set %s includes the code system %s, which it does not contain", name, set.system)
	}
	return nil
}

// imported expands a value set that an include names.
func (c *composer) imported(reference string) (*codeList, error) {
	vs, err := c.importedValueSet(reference)
	if err != nil {
		return nil, err
	}
	x, err := c.valueSet(vs)
	if err != nil {
		return nil, err
	}
	c.use(x, vs)
	return x, c.spend((1 + len(x.valueSets)) * len(c.used.valueSets) / plainBytes)
}

// importedValueSet finds a value set that an include names, contained or in the library. A parameter may choose the
// version if the reference has none.
func (c *composer) importedValueSet(reference string) (*valueSet, error) {
	importing := c.path[len(c.path)-1]
	among := c.rules.Versions.cost() + importing.sumOfContainers(func(vs *valueSet) int { return len(vs.contained) })
	if err := c.spend(1 + among); err != nil {
		return nil, err
	}
	if vs, ok := importing.containedValueSet(reference); ok {
		return vs, nil
	}
	url, version := splitCanonical(reference)
	if version == "" {
		var rule string
		if version, rule = versionFor(c.rules.Versions.ValueSets, url); version != "" {
			reference = canonical(url, version)
			c.used.apply("default-valueset-version", rule)
		}
	}
	if isWildcard(version) || c.rules.Date != "" {
		if err := c.spend(len(c.library.valueSets)); err != nil {
			return nil, err
		}
	}
	if vs, ok := c.library.anyValueSet(reference, c.rules.Date); ok {
		return vs, nil
	}
	id := "VS_EXP_IMPORT_UNK"
	if version != "" {
		id = "VS_EXP_IMPORT_UNK_PINNED"
	}
	e := issue(http.StatusUnprocessableEntity, "not-found", "not-found", id,
		fmt.Sprintf("value set %s, which %s imports, is not here", reference, importing.canonical()))
	e.Err, e.Missing = ErrIncomplete, missing("ValueSet", reference, "")
	return nil, e
}

// use adds an imported value set, and what it uses, to what the value set being expanded uses.
func (c *composer) use(x *codeList, vs *valueSet) {
	if vs.container == nil {
		addTo(&c.used.valueSets, vs)
	}
	addTo(&c.used.valueSets, x.valueSets...)
	addTo(&c.used.codeSystems, x.codeSystems...)
	addTo(&c.used.unchecked, x.unchecked...)
	addTo(&c.used.applied, x.applied...)
	addTo(&c.used.wanted, vs.supplements...)
}

// fromSystem evaluates an include without its value sets.
func (c *composer) fromSystem(set *conceptSet) ([]entry, error) {
	index, version, err := c.codeSystem(set.system, set.version)
	if err != nil {
		return nil, err
	}
	if c.isExcludedSystem(set.system, version, index) {
		return nil, nil
	}
	var cs *codeSystem // nil: its concepts are not here
	if index != none && c.library.codeSystems[index].content.hasConcepts() {
		cs = c.library.codeSystems[index]
		if err := cs.usable("code system"); err != nil {
			return nil, err
		}
		addTo(&c.used.codeSystems, index)
	}
	if err := c.spend(len(c.used.codeSystems) / plainBytes); err != nil {
		return nil, err
	}
	switch {
	case set.enumerated:
		if cs == nil {
			addTo(&c.used.unchecked, canonical(set.system, version))
		}
		return c.listed(set, cs, index)
	case cs == nil:
		return nil, c.library.missingCodeSystem(set.system, version)
	case len(set.filters) > 0:
		return c.filtered(set, index)
	}
	if cs.concepts.List == nil {
		return nil, cs.notListed()
	}
	entries := make([]entry, cs.concepts.Len())
	for concept := range entries {
		entries[concept] = entry{codeSystem: index, concept: uint32(concept)}
	}
	return entries, nil
}

// listed returns the concepts that an include lists, without those that a complete code system does not have.
func (c *composer) listed(set *conceptSet, cs *codeSystem, index uint32) ([]entry, error) {
	if cs != nil && cs.concepts.List == nil {
		if err := c.spend(int(set.last-set.first) * parseSteps); err != nil {
			return nil, err
		}
	}
	entries := make([]entry, 0, set.last-set.first)
	for row := set.first; row < set.last; row++ {
		e := entry{codeSystem: none, concept: none, listed: row}
		if cs != nil {
			table, at := c.library.row(row)
			if c, ok := cs.concepts.Locate(table.texts.At(table.code[at])); ok {
				e.codeSystem, e.concept = index, cs.number(c)
			} else if cs.isWhole() {
				continue
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseSteps is the cost of a code that a grammar reads, several times, until it is shown.
const parseSteps = 100
