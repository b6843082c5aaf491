package terminology

import (
	"cmp"
	"slices"
)

// allVersions stands for every version of a code system (R4 ValueSet.compose.include.version).
const allVersions = "*"

// inAllVersions replaces each include or exclude of all versions by one per loaded version.
func (c *composer) inAllVersions(sets []conceptSet) ([]conceptSet, error) {
	if !slices.ContainsFunc(sets, func(set conceptSet) bool { return set.version == allVersions }) {
		return sets, nil
	}
	var list []conceptSet
	for _, set := range sets {
		if set.version != allVersions || c.library.containedCodeSystem(c.path[len(c.path)-1], set.system, set.version) != none {
			list = append(list, set)
			continue
		}
		versions := c.versionsHere(set.system)
		if err := c.spend(8 * len(versions)); err != nil {
			return nil, err
		}
		for _, version := range versions {
			set.version = version
			list = append(list, set)
		}
	}
	return list, nil
}

// versionsHere returns the loaded versions of a code system that have concepts and are no later than the date in force,
// or else the empty version.
func (c *composer) versionsHere(url string) []string {
	var versions []string
	if id, ok := c.library.systemID(url); ok {
		date := cmp.Or(c.path[len(c.path)-1].lockedDate, c.rules.Date)
		for _, index := range c.library.systems[id].versions {
			if cs := c.library.codeSystems[index]; cs.content.hasConcepts() && (date == "" || isBy(cs.date, date)) {
				versions = append(versions, cs.version)
			}
		}
	}
	if len(versions) == 0 {
		return []string{""}
	}
	return versions
}
