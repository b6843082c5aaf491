package compose

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Composer expands one value set and those that it imports.
type Composer struct {
	Library *definitions.Set        // the definitions
	Rules   *Rules                  // of the operation
	Budget  *budget.Budget          // of the request
	Path    []*definitions.ValueSet // being expanded: each imports the next
	done    map[*definitions.ValueSet]*CodeList
	Used    *CodeList // of the last value set in path
}

// valueSet expands a value set: the union of its includes without its excludes (R4 §4.9.5).
func (c *Composer) valueSet(vs *definitions.ValueSet) (*CodeList, error) {
	if x, ok := c.done[vs]; ok {
		return x, nil
	}
	if err := c.enter(vs); err != nil {
		return nil, err
	}
	x, outer := &CodeList{}, c.Used
	c.Used = x
	entries, err := c.compose(vs)
	c.Used, c.Path = outer, c.Path[:len(c.Path)-1]
	if err != nil {
		return nil, err
	}
	x.Entries = entries
	c.done[vs] = x
	return x, nil
}

// enter adds a value set to the path, unless it is there already or the path is too long.
func (c *Composer) enter(vs *definitions.ValueSet) error {
	if i := slices.Index(c.Path, vs); i >= 0 {
		return circular(slices.Concat(c.Path[i:], []*definitions.ValueSet{vs}))
	}
	if len(c.Path) > c.Library.Bounds.ImportDepth {
		return outcome.Unprocessable("too-costly", "value set %s imports value sets more than %d deep", c.Path[0].Canonical(), c.Library.Bounds.ImportDepth)
	}
	if !vs.Composed {
		e := outcome.Incomplete("not-found", "value set %s has no compose, so its content is not here", vs.Canonical())
		e.Missing = outcome.MissingOf("ValueSet", vs.URL, vs.Version)
		return e
	}
	if err := vs.Usable("value set"); err != nil {
		return err
	}
	c.Path = append(c.Path, vs)
	return c.spend(len(vs.Include) + len(vs.Exclude))
}

func circular(path []*definitions.ValueSet) error {
	names := make([]string, len(path))
	for i, vs := range path {
		names[i] = vs.Canonical()
	}
	return outcome.New(http.StatusUnprocessableEntity, "processing", "vs-invalid", "VALUESET_CIRCULAR_REFERENCE",
		"value sets import each other: "+strings.Join(names, " -> "))
}

func (c *Composer) compose(vs *definitions.ValueSet) ([]definitions.Entry, error) {
	include, exclude, err := c.sets(vs)
	if err != nil {
		return nil, err
	}
	c.Used.Tree = canBeTree(vs)
	c.Used.Filtered = slices.ContainsFunc(include, func(set definitions.ConceptSet) bool { return len(set.Filters) > 0 })
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
	if vs.ActiveOnly {
		entries = slices.DeleteFunc(entries, func(e definitions.Entry) bool { return c.Library.Flags(e)&codesystem.FlagInactive != 0 })
	}
	return entries, nil
}

// sets returns the includes and excludes of a value set, those of newer versions first.
func (c *Composer) sets(vs *definitions.ValueSet) (include, exclude []definitions.ConceptSet, err error) {
	if include, err = c.inAllVersions(vs.Include); err != nil {
		return nil, nil, err
	}
	if exclude, err = c.inAllVersions(vs.Exclude); err != nil {
		return nil, nil, err
	}
	c.chooseIdentity(include, exclude)
	if c.Used.Versioned {
		include = newestFirst(include)
	}
	return include, exclude, nil
}

// chooseIdentity decides whether the same code in two versions of a code system is two codes: it is if the value set
// names several versions, unless versionsMatch is true or the value set is the difference of two versions.
func (c *Composer) chooseIdentity(include, exclude []definitions.ConceptSet) {
	versions := make(map[string]string)
	for _, set := range slices.Concat(include, exclude) {
		if version, ok := versions[set.System]; ok && version != set.Version && set.System != "" {
			c.Used.Versioned = true
		}
		versions[set.System] = set.Version
	}
	match := c.Rules.Versions.Match
	c.Used.Merged = c.Used.Versioned && (match == parameters.Yes || match == parameters.Unset && isDifference(include, exclude))
	c.Used.byVersion = c.Used.Versioned && !c.Used.Merged
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
func (c *Composer) set() *codeSet {
	s := newCodeSet(c.Library)
	s.byVersion = c.Used.byVersion
	return s
}

// union evaluates includes or excludes: each code once, in their order.
func (c *Composer) union(sets []definitions.ConceptSet, name string) ([]definitions.Entry, error) {
	var entries []definitions.Entry
	seen := c.set()
	for i := range sets {
		part, err := c.conceptSet(&sets[i])
		if err != nil {
			return nil, outcome.Located(err, "ValueSet.compose."+name, i)
		}
		if err := c.spend(len(part)); err != nil {
			return nil, err
		}
		if len(sets) == 1 && !sets[i].Enumerated {
			return part, nil // no code is in it twice
		}
		for _, e := range part {
			if seen.has(e) {
				c.Used.Tree = false
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
func (c *Composer) spend(n int) error {
	err := c.Budget.Spend(n)
	if err == nil || !errors.Is(err, budget.ErrSpent) {
		return err
	}
	return &outcome.Error{
		Status: http.StatusUnprocessableEntity, Code: "too-costly", MessageID: "VALUESET_TOO_COSTLY", Err: budget.ErrSpent,
		Text: fmt.Sprintf("value set %s gathers or looks at more than %d codes before it is whole", c.Path[0].Canonical(), c.Library.Bounds.Gathered),
	}
}
