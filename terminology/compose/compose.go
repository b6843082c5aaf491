package compose

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// ValueSet evaluates a value set, once, however many import it: the union of its includes without its excludes.
func (c *Evaluator) ValueSet(vs *definitions.ValueSet) (*CodeList, error) {
	if x, ok := c.done[vs]; ok {
		return x, nil
	}
	if err := c.enter(vs); err != nil {
		return nil, err
	}
	x, outer := &CodeList{}, c.used
	c.used = x
	entries, err := c.compose(vs)
	c.used, c.Path = outer, c.Path[:len(c.Path)-1]
	if err != nil {
		return nil, err
	}
	x.Entries = entries
	c.done[vs] = x
	return x, nil
}

func (c *Evaluator) compose(vs *definitions.ValueSet) ([]definitions.Entry, error) {
	include, exclude, err := c.sets(vs)
	if err != nil {
		return nil, err
	}
	c.used.Tree = canBeTree(vs)
	c.used.Filtered = slices.ContainsFunc(include, func(set definitions.ConceptSet) bool { return len(set.Filters) > 0 })
	entries, err := c.union(include, "include")
	if err != nil || c.isSettled(entries) {
		return nil, err
	}
	if len(exclude) > 0 {
		excluded, err := c.union(exclude, "exclude")
		if err != nil {
			return nil, err
		}
		if entries, err = c.without(entries, excluded); err != nil {
			return nil, err
		}
	}
	if vs.ActiveOnly && !c.isOutermostTest() {
		entries = slices.DeleteFunc(entries, c.IsInactive)
	}
	return entries, nil
}

// IsInactive reports whether an entry is inactive.
func (c *Evaluator) IsInactive(e definitions.Entry) bool {
	return c.library.FlagsOf(c.Locate(e))&codesystem.FlagInactive != 0
}

// without returns entries without those that are excluded.
func (c *Evaluator) without(entries, excluded []definitions.Entry) ([]definitions.Entry, error) {
	if c.Probe != nil {
		return c.notAmong(entries, excluded)
	}
	without := c.set()
	without.addAll(excluded)
	if err := c.spend(len(entries)); err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, without.has)
	return entries, c.spend(without.elsewhere)
}

// sets returns the includes and excludes of a value set, those of newer versions first.
func (c *Evaluator) sets(vs *definitions.ValueSet) (include, exclude []definitions.ConceptSet, err error) {
	if include, err = c.inAllVersions(vs.Include); err != nil {
		return nil, nil, err
	}
	if exclude, err = c.inAllVersions(vs.Exclude); err != nil {
		return nil, nil, err
	}
	c.chooseIdentity(include, exclude)
	if c.used.Versioned {
		include = newestFirst(include)
	}
	return include, exclude, nil
}

// chooseIdentity decides whether the same code in two versions of a code system is two codes: it is if the value set
// names several versions, unless versionsMatch is true or the value set is the difference of two versions.
func (c *Evaluator) chooseIdentity(include, exclude []definitions.ConceptSet) {
	versions := make(map[string]string)
	for _, set := range slices.Concat(include, exclude) {
		if version, ok := versions[set.System]; ok && version != set.Version && set.System != "" {
			c.used.Versioned = true
		}
		versions[set.System] = set.Version
	}
	match := c.rules.Versions.Match
	c.used.Merged = c.used.Versioned && (match == parameters.Yes || match == parameters.Unset && isDifference(include, exclude))
	c.used.byVersion = c.used.Versioned && !c.used.Merged
}

// isDifference reports whether a value set includes some versions of a code system and excludes others.
func isDifference(include, exclude []definitions.ConceptSet) bool {
	if len(include) == 0 || len(exclude) == 0 {
		return false
	}
	system := include[0].System
	other := func(set definitions.ConceptSet) bool { return set.System != system || set.Version == "" }
	return !slices.ContainsFunc(include, other) && !slices.ContainsFunc(exclude, other) &&
		!slices.ContainsFunc(include, func(in definitions.ConceptSet) bool {
			return slices.ContainsFunc(exclude, func(out definitions.ConceptSet) bool { return in.Version == out.Version })
		})
}

// newestFirst sorts the includes of a code system by version, so that of a code in several versions the newest counts.
func newestFirst(sets []definitions.ConceptSet) []definitions.ConceptSet {
	return slices.SortedStableFunc(slices.Values(sets), func(a, b definitions.ConceptSet) int {
		if a.System != b.System || a.Version == "" || b.Version == "" {
			return 0
		}
		return cmp.Compare(0, definitions.CompareVersions(a.Version, b.Version))
	})
}

// canBeTree reports whether an expansion may be a tree: its codes come from the hierarchies of code systems, not from
// lists, other value sets or combined filters.
func canBeTree(vs *definitions.ValueSet) bool {
	flat := func(set definitions.ConceptSet) bool {
		return set.Enumerated || len(set.ValueSets) > 0 || len(set.Filters) > 1
	}
	return !slices.ContainsFunc(vs.Include, flat) && !slices.ContainsFunc(vs.Exclude, flat)
}

// set returns an empty set for the codes of the last value set in path.
func (c *Evaluator) set() *codeSet {
	s := newCodeSet(c.library)
	s.byVersion = c.used.byVersion
	return s
}

// union evaluates includes or excludes: each code once, in their order.
func (c *Evaluator) union(sets []definitions.ConceptSet, name string) ([]definitions.Entry, error) {
	var entries []definitions.Entry
	seen := c.set()
	for i := range sets {
		part, err := c.conceptSet(&sets[i])
		if err != nil {
			return nil, located(err, "ValueSet.compose."+name, i)
		}
		if err := c.spend(len(part)); err != nil {
			return nil, err
		}
		if len(sets) == 1 && !sets[i].Enumerated {
			return part, nil // no code is in it twice
		}
		if c.Probe != nil {
			entries = append(entries, part...) // each place counts
			continue
		}
		for _, e := range part {
			if seen.has(e) {
				c.used.Tree = false
				continue
			}
			seen.add(e)
			entries = append(entries, e)
		}
		if err := c.spend(seen.elsewhere); err != nil {
			return nil, err
		}
		seen.elsewhere = 0
	}
	return entries, nil
}
