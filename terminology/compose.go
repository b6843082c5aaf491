package terminology

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// composer expands one value set and those that it imports.
type composer struct {
	library *Set
	rules   *Rules
	budget  *budget
	path    []*valueSet // being expanded: each imports the next
	done    map[*valueSet]*codeList
	used    *codeList // of the last value set in path
}

// valueSet expands a value set: the union of its includes without its excludes (R4 §4.9.5).
func (c *composer) valueSet(vs *valueSet) (*codeList, error) {
	if x, ok := c.done[vs]; ok {
		return x, nil
	}
	if err := c.enter(vs); err != nil {
		return nil, err
	}
	x, outer := &codeList{}, c.used
	c.used = x
	entries, err := c.compose(vs)
	c.used, c.path = outer, c.path[:len(c.path)-1]
	if err != nil {
		return nil, err
	}
	x.entries = entries
	c.done[vs] = x
	return x, nil
}

// enter adds a value set to the path, unless it is there already or the path is too long.
func (c *composer) enter(vs *valueSet) error {
	if i := slices.Index(c.path, vs); i >= 0 {
		return circular(slices.Concat(c.path[i:], []*valueSet{vs}))
	}
	if len(c.path) > c.library.bounds.importDepth {
		return unprocessable("too-costly", "value set %s imports value sets more than %d deep", c.path[0].canonical(), c.library.bounds.importDepth)
	}
	if !vs.composed {
		e := incomplete("not-found", "value set %s has no compose, so its content is not here", vs.canonical())
		e.Missing = missing("ValueSet", vs.url, vs.version)
		return e
	}
	if err := vs.usable("value set"); err != nil {
		return err
	}
	c.path = append(c.path, vs)
	return c.spend(len(vs.include) + len(vs.exclude))
}

func circular(path []*valueSet) error {
	names := make([]string, len(path))
	for i, vs := range path {
		names[i] = vs.canonical()
	}
	return issue(http.StatusUnprocessableEntity, "processing", "vs-invalid", "VALUESET_CIRCULAR_REFERENCE",
		"value sets import each other: "+strings.Join(names, " -> "))
}

func (c *composer) compose(vs *valueSet) ([]entry, error) {
	include, exclude, err := c.sets(vs)
	if err != nil {
		return nil, err
	}
	c.used.tree = canBeTree(vs)
	c.used.filtered = slices.ContainsFunc(include, func(set conceptSet) bool { return len(set.filters) > 0 })
	entries, err := c.union(include, "include")
	if err != nil {
		return nil, err
	}
	if len(exclude) > 0 {
		excluded, err := c.union(exclude, "exclude")
		if err != nil {
			return nil, err
		}
		without := c.set()
		without.addAll(excluded)
		if err := c.spend(len(entries)); err != nil {
			return nil, err
		}
		entries = slices.DeleteFunc(entries, without.has)
		if err := c.spend(without.elsewhere); err != nil {
			return nil, err
		}
	}
	if vs.activeOnly {
		entries = slices.DeleteFunc(entries, func(e entry) bool { return c.library.flags(e)&codesystem.FlagInactive != 0 })
	}
	return entries, nil
}

// sets returns the includes and excludes of a value set, those of newer versions first.
func (c *composer) sets(vs *valueSet) (include, exclude []conceptSet, err error) {
	if include, err = c.inAllVersions(vs.include); err != nil {
		return nil, nil, err
	}
	if exclude, err = c.inAllVersions(vs.exclude); err != nil {
		return nil, nil, err
	}
	c.chooseIdentity(include, exclude)
	if c.used.versioned {
		include = newestFirst(include)
	}
	return include, exclude, nil
}

// chooseIdentity decides whether the same code in two versions of a code system is two codes: it is if the value set
// names several versions, unless versionsMatch is true or the value set is the difference of two versions.
func (c *composer) chooseIdentity(include, exclude []conceptSet) {
	versions := make(map[string]string)
	for _, set := range slices.Concat(include, exclude) {
		if version, ok := versions[set.system]; ok && version != set.version && set.system != "" {
			c.used.versioned = true
		}
		versions[set.system] = set.version
	}
	match := c.rules.Versions.Match
	c.used.merged = c.used.versioned && (match == Yes || match == Unset && isDifference(include, exclude))
	c.used.byVersion = c.used.versioned && !c.used.merged
}

// isDifference reports whether a value set includes some versions of a code system and excludes others.
func isDifference(include, exclude []conceptSet) bool {
	if len(include) == 0 || len(exclude) == 0 {
		return false
	}
	system := include[0].system
	other := func(set conceptSet) bool { return set.system != system || set.version == "" }
	return !slices.ContainsFunc(include, other) && !slices.ContainsFunc(exclude, other) &&
		!slices.ContainsFunc(include, func(in conceptSet) bool {
			return slices.ContainsFunc(exclude, func(out conceptSet) bool { return in.version == out.version })
		})
}

// newestFirst sorts the includes of a code system by version, so that of a code in several versions the newest counts.
func newestFirst(sets []conceptSet) []conceptSet {
	return slices.SortedStableFunc(slices.Values(sets), func(a, b conceptSet) int {
		if a.system != b.system || a.version == "" || b.version == "" {
			return 0
		}
		return cmp.Compare(0, compareVersions(a.version, b.version))
	})
}

// canBeTree reports whether an expansion may be a tree: its codes come from the hierarchies of code systems, not from
// lists, other value sets or combined filters.
func canBeTree(vs *valueSet) bool {
	flat := func(set conceptSet) bool { return set.enumerated || len(set.valueSets) > 0 || len(set.filters) > 1 }
	return !slices.ContainsFunc(vs.include, flat) && !slices.ContainsFunc(vs.exclude, flat)
}

// set returns an empty set for the codes of the last value set in path.
func (c *composer) set() *codeSet {
	s := newCodeSet(c.library)
	s.byVersion = c.used.byVersion
	return s
}

// union evaluates includes or excludes: each code once, in their order.
func (c *composer) union(sets []conceptSet, name string) ([]entry, error) {
	var entries []entry
	seen := c.set()
	for i := range sets {
		part, err := c.conceptSet(&sets[i])
		if err != nil {
			return nil, located(err, "ValueSet.compose."+name, i)
		}
		if err := c.spend(len(part)); err != nil {
			return nil, err
		}
		if len(sets) == 1 && !sets[i].enumerated {
			return part, nil // no code is in it twice
		}
		for _, e := range part {
			if seen.has(e) {
				c.used.tree = false
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

// spend pays for codes that are gathered or looked at: a value set of a request may repeat a costly include a hundred
// thousand times.
func (c *composer) spend(n int) error {
	err := c.budget.spend(n)
	if err == nil || !errors.Is(err, errSpent) {
		return err
	}
	return &Error{
		Status: http.StatusUnprocessableEntity, Code: "too-costly", MessageID: "VALUESET_TOO_COSTLY", Err: errSpent,
		Text: fmt.Sprintf("value set %s gathers or looks at more than %d codes before it is whole", c.path[0].canonical(), c.library.bounds.gathered),
	}
}
