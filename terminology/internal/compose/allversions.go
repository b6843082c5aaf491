package compose

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// allVersions stands for every version of a code system (R4 ValueSet.compose.include.version).
const allVersions = "*"

// inAllVersions replaces each include or exclude of all versions by one per loaded version.
func (c *Evaluator) inAllVersions(sets []definitions.ConceptSet) ([]definitions.ConceptSet, error) {
	if !slices.ContainsFunc(sets, func(set definitions.ConceptSet) bool { return set.Version == allVersions }) {
		return sets, nil
	}
	var list []definitions.ConceptSet
	for _, set := range sets {
		if set.Version != allVersions || c.library.Systems.ContainedCodeSystem(c.Path[len(c.Path)-1], set.System, set.Version) != definitions.None {
			list = append(list, set)
			continue
		}
		versions := versionsHere(c.library, set.System, cmp.Or(c.Path[len(c.Path)-1].LockedDate, c.rules.Date))
		if err := c.spend(8 * len(versions)); err != nil {
			return nil, err
		}
		for _, version := range versions {
			set.Version = version
			list = append(list, set)
		}
	}
	return list, nil
}

// versionsHere returns the loaded versions of a code system that have concepts and are no later than a date, if there is
// one, or else the empty version.
func versionsHere(l *definitions.Set, url, date string) []string {
	var versions []string
	if id, ok := l.Systems.SystemID(url); ok {
		for _, index := range l.Systems.List[id].Versions {
			if cs := l.Systems.CodeSystems[index]; cs.Content.HasConcepts() && (date == "" || definitions.IsBy(cs.Date, date)) {
				versions = append(versions, cs.Version)
			}
		}
	}
	if len(versions) == 0 {
		return []string{""}
	}
	return versions
}
