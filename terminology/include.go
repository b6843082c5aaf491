package terminology

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// conceptSet evaluates one include or exclude: the codes that are in its system, as restricted by
// concept or filter, and in every value set that it names.
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
		within := newCodeSet(&c.library.definitions)
		within.addAll(imported.entries)
		entries = slices.DeleteFunc(entries, func(e entry) bool { return !within.has(e) })
	}
	return entries, nil
}

// validate checks what R4 demands of an include (invariants vsd-1 to vsd-3).
func (c *composer) validate(set *conceptSet) error {
	vs := c.path[len(c.path)-1]
	among := c.rules.Versions.cost() + c.library.countVersions(set.system) + vs.sumOfContainers(func(vs *valueSet) int { return len(vs.codeSystems) })
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

// imported expands a value set that is named in an include.
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

// importedValueSet finds a value set that is named in an include: one that is contained, or one of the
// library, in the version that a parameter says where the reference has none.
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

// use notes that the value set being expanded uses an imported one, and what that uses.
func (c *composer) use(x *codeList, vs *valueSet) {
	for _, other := range append([]*valueSet{vs}, x.valueSets...) {
		if !slices.Contains(c.used.valueSets, other) && other.container == nil {
			c.used.valueSets = append(c.used.valueSets, other)
		}
	}
	for _, index := range x.codeSystems {
		c.useCodeSystem(index)
	}
	for _, unchecked := range x.unchecked {
		c.used.leaveUnchecked(unchecked)
	}
	for _, a := range x.applied {
		c.used.apply(a.name, a.value)
	}
	for _, s := range vs.supplements {
		if !slices.Contains(c.used.wanted, s) {
			c.used.wanted = append(c.used.wanted, s)
		}
	}
}

// useCodeSystem notes that the value set being expanded makes use of a code system.
func (c *composer) useCodeSystem(index uint32) {
	if !slices.Contains(c.used.codeSystems, index) {
		c.used.codeSystems = append(c.used.codeSystems, index)
	}
}

// fromSystem evaluates the part of an include that is about its code system.
func (c *composer) fromSystem(set *conceptSet) ([]entry, error) {
	index, version, err := c.codeSystem(set.system, set.version)
	if err != nil {
		return nil, err
	}
	if c.isExcludedSystem(set.system, version, index) {
		return nil, nil
	}
	here := index != none && c.library.codeSystems[index].content.hasConcepts()
	if here {
		if err := c.library.codeSystems[index].usable("code system"); err != nil {
			return nil, err
		}
		c.useCodeSystem(index)
	}
	if err := c.spend(len(c.used.codeSystems) / plainBytes); err != nil {
		return nil, err
	}
	switch {
	case set.enumerated && here:
		return c.listedIn(set, index), nil
	case set.enumerated:
		c.used.leaveUnchecked(canonical(set.system, version))
		return c.listedOnly(set), nil
	case !here:
		return nil, c.library.missingCodeSystem(set.system, version)
	case len(set.filters) == 0:
		return c.wholeSystem(index), nil
	default:
		return c.filtered(set, index)
	}
}

// wholeSystem returns all concepts of a code system.
func (c *composer) wholeSystem(index uint32) []entry {
	entries := make([]entry, c.library.codeSystems[index].Len())
	for concept := range entries {
		entries[concept] = entry{codeSystem: index, concept: uint32(concept)}
	}
	return entries
}

// listedIn returns the concepts that an include lists, as the code system has them. Codes that a complete code system
// does not have are left out.
func (c *composer) listedIn(set *conceptSet, index uint32) []entry {
	cs := c.library.codeSystems[index]
	entries := make([]entry, 0, set.last-set.first)
	for row := set.first; row < set.last; row++ {
		table, at := c.library.row(row)
		concept, ok := cs.Locate(table.texts.At(table.code[at]))
		switch {
		case ok:
			entries = append(entries, entry{codeSystem: index, concept: concept, listed: row})
		case cs.content != contentComplete:
			entries = append(entries, entry{codeSystem: none, concept: none, listed: row})
		}
	}
	return entries
}

// listedOnly returns the concepts that an include lists from a code system that is not here.
func (c *composer) listedOnly(set *conceptSet) []entry {
	entries := make([]entry, 0, set.last-set.first)
	for row := set.first; row < set.last; row++ {
		entries = append(entries, entry{codeSystem: none, concept: none, listed: row})
	}
	return entries
}
