package compose

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// ValueSet evaluates a value set, once, however many import it: the union of its includes without its excludes.
func (c *Evaluator) ValueSet(vs *definitions.ValueSet) (*CodeList, error) {
	if x, ok := c.done[vs]; ok && (c.among == nil || len(x.Based) == 0 && len(x.Unlisted) == 0) {
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
	if x.Entries = entries; !x.relative {
		c.done[vs] = x
	}
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
		excluded, err := c.excluded(exclude, entries)
		if err != nil {
			return nil, err
		}
		if entries, err = c.without(entries, excluded); err != nil {
			return nil, err
		}
	}
	outermostTest := c.Probe != nil && len(c.Path) == 1 // whose answer tells inactive codes apart
	if vs.ActiveOnly && !outermostTest {
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
		entries = notAmong(entries, excluded, c.used.byVersion)
		return entries, c.spend(len(entries) * len(excluded) / budget.PlainBytes)
	}
	without := newCodeSet(c.library, c.used.byVersion)
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
	c.used.chooseIdentity(include, exclude, c.rules.Versions.Match)
	if c.used.Versioned {
		include = newestFirst(include)
	}
	return include, exclude, nil
}

// chooseIdentity decides whether the same code in two versions of a code system is two codes: it is if the value set
// names several versions, unless versionsMatch is true or the value set is the difference of two versions.
func (t *traits) chooseIdentity(include, exclude []definitions.ConceptSet, match parameters.Choice) {
	versions := make(map[string]string)
	for _, set := range slices.Concat(include, exclude) {
		if version, ok := versions[set.System]; ok && version != set.Version && set.System != "" {
			t.Versioned = true
		}
		versions[set.System] = set.Version
	}
	t.Merged = t.Versioned && (match == parameters.Yes || match == parameters.Unset && isDifference(include, exclude))
	t.byVersion = t.Versioned && !t.Merged
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

// union evaluates includes or excludes: each code once, in their order.
func (c *Evaluator) union(sets []definitions.ConceptSet, name string) ([]definitions.Entry, error) {
	var entries []definitions.Entry
	seen := newCodeSet(c.library, c.used.byVersion)
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
	set := newCodeSet(c.library, false)
	set.addAll(others)
	return slices.DeleteFunc(entries, func(e definitions.Entry) bool { return !set.has(e) })
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
	c.used.add(x, vs)
	return x, c.spend((1 + len(x.ValueSets)) * len(c.used.ValueSets) / budget.PlainBytes)
}

// add adds an imported value set, and what it uses.
func (u *used) add(x *CodeList, vs *definitions.ValueSet) {
	if vs.Container == nil {
		definitions.AddTo(&u.ValueSets, vs)
	}
	definitions.AddTo(&u.ValueSets, x.ValueSets...)
	definitions.AddTo(&u.CodeSystems, x.CodeSystems...)
	definitions.AddTo(&u.Unchecked, x.Unchecked...)
	definitions.AddTo(&u.Applied, x.Applied...)
	definitions.AddTo(&u.wanted, vs.Supplements...)
	definitions.AddTo(&u.Based, x.Based...)
	definitions.AddTo(&u.Unlisted, x.Unlisted...)
	u.relative = u.relative || x.relative
}
