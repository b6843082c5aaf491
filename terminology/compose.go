package terminology

import (
	"slices"
	"strings"
)

// composer expands one value set and, on the way, those that it imports.
type composer struct {
	library *Library
	path    []*valueSet // being expanded: each imports the next
	done    map[*valueSet]*expansion
	used    *expansion // of the value set at the end of path
}

// expansion returns a value set's expansion: a remembered one, or else a new one, which is then
// remembered. Several requests for the same one wait for one computation.
func (l *Library) expansion(vs *valueSet) (*expansion, error) {
	key := vs.url + "|" + vs.version
	if x, ok := l.expansions.get(key); ok {
		return x, nil
	}
	x, err, _ := l.inProgress.Do(key, func() (any, error) {
		c := &composer{library: l, done: make(map[*valueSet]*expansion)}
		x, err := c.valueSet(vs)
		if err != nil {
			return nil, err
		}
		l.expansions.put(key, x)
		return x, nil
	})
	if err != nil {
		return nil, err
	}
	return x.(*expansion), nil
}

// valueSet expands a value set: its includes united, without its excludes (R4 §4.9.5).
func (c *composer) valueSet(vs *valueSet) (*expansion, error) {
	if x, ok := c.done[vs]; ok {
		return x, nil
	}
	if err := c.enter(vs); err != nil {
		return nil, err
	}
	x, outer := &expansion{}, c.used
	c.used = x
	entries, err := c.compose(vs)
	c.used, c.path = outer, c.path[:len(c.path)-1]
	if err != nil {
		return nil, err
	}
	x.entries = entries
	c.library.seal(x)
	c.done[vs] = x
	return x, nil
}

// enter goes on to a value set unless it is on the path already, or the path is too long.
func (c *composer) enter(vs *valueSet) error {
	if i := slices.Index(c.path, vs); i >= 0 {
		var names []string
		for _, v := range slices.Concat(c.path[i:], []*valueSet{vs}) {
			names = append(names, v.canonical())
		}
		return unprocessable("invalid", "value sets import each other: %s", strings.Join(names, " -> "))
	}
	if len(c.path) > c.library.importDepth {
		return unprocessable("too-costly", "value set %s imports value sets more than %d deep", c.path[0].canonical(), c.library.importDepth)
	}
	if !vs.composed {
		return incomplete("not-found", "value set %s has no compose, so its content is not here", vs.canonical())
	}
	c.path = append(c.path, vs)
	return nil
}

// compose evaluates ValueSet.compose.
func (c *composer) compose(vs *valueSet) ([]entry, error) {
	entries, err := c.union(vs.include)
	if err != nil {
		return nil, err
	}
	if len(vs.exclude) > 0 {
		excluded, err := c.union(vs.exclude)
		if err != nil {
			return nil, err
		}
		without := newCodeSetOf(c.library, excluded)
		entries = slices.DeleteFunc(entries, without.has)
	}
	if vs.activeOnly {
		entries = slices.DeleteFunc(entries, func(e entry) bool { return c.library.flags(e)&flagInactive != 0 })
	}
	return entries, nil
}

// union evaluates a list of includes or excludes: each code once, in the order of the list.
func (c *composer) union(sets []conceptSet) ([]entry, error) {
	var entries []entry
	seen := newCodeSet(c.library)
	for i := range sets {
		part, err := c.conceptSet(&sets[i])
		if err != nil {
			return nil, err
		}
		if len(sets) == 1 && !sets[i].enumerated {
			return part, nil // nothing can be in it twice
		}
		for _, e := range part {
			if !seen.has(e) {
				seen.add(e)
				entries = append(entries, e)
			}
		}
	}
	return entries, nil
}

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
		if i == 0 && set.system == "" {
			entries = slices.Clone(imported.entries)
			continue
		}
		within := newCodeSetOf(c.library, imported.entries)
		entries = slices.DeleteFunc(entries, func(e entry) bool { return !within.has(e) })
	}
	return entries, nil
}

// validate checks what R4 demands of an include (invariants vsd-1 to vsd-3).
func (c *composer) validate(set *conceptSet) error {
	name := c.path[len(c.path)-1].canonical()
	switch {
	case set.system == "" && len(set.valueSets) == 0:
		return unprocessable("invalid", "value set %s has an include with neither system nor valueSet", name)
	case set.system == "" && (set.enumerated || len(set.filters) > 0):
		return unprocessable("invalid", "value set %s has an include with concept or filter but no system", name)
	case set.enumerated && len(set.filters) > 0:
		return unprocessable("invalid", "value set %s has an include with both concept and filter", name)
	case strings.HasPrefix(set.system, "#"):
		return incomplete("not-supported", "value set %s includes the contained code system %s, which R4 does not allow", name, set.system)
	}
	return nil
}

// imported expands a value set that is named in an include.
func (c *composer) imported(reference string) (*expansion, error) {
	vs, ok := c.library.valueSet(reference)
	if !ok {
		return nil, incomplete("not-found", "value set %s, which %s imports, is not here",
			reference, c.path[len(c.path)-1].canonical())
	}
	x, err := c.valueSet(vs)
	if err != nil {
		return nil, err
	}
	c.use(x, vs)
	return x, nil
}

// use notes that the value set being expanded makes use of an imported one and all that it uses.
func (c *composer) use(x *expansion, vs *valueSet) {
	for _, other := range append([]*valueSet{vs}, x.valueSets...) {
		if !slices.Contains(c.used.valueSets, other) {
			c.used.valueSets = append(c.used.valueSets, other)
		}
	}
	for _, index := range x.codeSystems {
		c.useCodeSystem(index)
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
	index := c.library.codeSystem(set.system, set.version)
	here := index != none && c.library.codeSystems[index].content.hasConcepts()
	if here {
		c.useCodeSystem(index)
	}
	switch {
	case set.enumerated && here:
		return c.listedIn(set, index), nil
	case set.enumerated:
		return c.listedOnly(set), nil
	case !here:
		return nil, c.library.missingCodeSystem(set.system, set.version)
	case len(set.filters) == 0:
		return c.wholeSystem(index), nil
	default:
		return c.filtered(set, index)
	}
}

// wholeSystem returns all concepts of a code system.
func (c *composer) wholeSystem(index uint32) []entry {
	entries := make([]entry, c.library.codeSystems[index].len())
	for concept := range entries {
		entries[concept] = entry{codeSystem: index, concept: uint32(concept)}
	}
	return entries
}

// listedIn returns the concepts that an include lists, as the code system knows them. A code that a
// complete code system does not have is no code of it, and so is left out.
func (c *composer) listedIn(set *conceptSet, index uint32) []entry {
	l, cs := c.library, c.library.codeSystems[index]
	entries := make([]entry, 0, set.last-set.first)
	for row := set.first; row < set.last; row++ {
		concept, ok := cs.concept(l.listed.texts.at(l.listed.code[row]))
		switch {
		case ok && l.listed.display[row] != 0:
			entries = append(entries, entry{codeSystem: index, concept: concept, listed: row})
		case ok:
			entries = append(entries, entry{codeSystem: index, concept: concept})
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
