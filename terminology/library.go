package terminology

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
)

// none stands for "no code system" or "no concept" where an index is expected.
const none = ^uint32(0)

// Library holds code systems and value sets, and expands them. Make one with [Load]. Its content never
// changes, and it may be used by any number of goroutines.
type Library struct {
	loaded      time.Time
	importDepth int

	codeSystems []*codeSystem
	valueSets   []*valueSet
	listed      listed

	systems      []system
	systemIDs    map[string]uint32
	byCanonical  map[string]*valueSet // url|version
	latest       map[string]*valueSet // url
	expansions   *expansionCache
	inProgress   singleflight.Group
	replacements int
}

// system is a code system's url with the versions of it that are here.
type system struct {
	url      string
	versions []uint32 // indexes in Library.codeSystems, in the order of loading
	current  uint32   // the one that a reference without a version means, or none
}

// Counts says how much a library holds.
type Counts struct {
	// CodeSystems is the number of code systems, each version counted, those without concepts
	// (not-present) and supplements included.
	CodeSystems int

	// ValueSets is the number of value sets, each version counted.
	ValueSets int

	// Concepts is the number of concepts in all code systems.
	Concepts int

	// Replaced is the number of definitions that a later source replaced.
	Replaced int
}

// Counts returns how much the library holds, for a line in the log.
func (l *Library) Counts() Counts {
	c := Counts{CodeSystems: len(l.codeSystems), ValueSets: len(l.valueSets), Replaced: l.replacements}
	for _, cs := range l.codeSystems {
		c.Concepts += cs.len()
	}
	return c
}

// internSystem returns the index of a code system's url.
func (l *Library) internSystem(url string) uint32 {
	id, ok := l.systemIDs[url]
	if !ok {
		id = uint32(len(l.systems))
		l.systems = append(l.systems, system{url: url, current: none})
		l.systemIDs[url] = id
	}
	return id
}

// addCodeSystem adds a code system. One with the same url and version is replaced.
func (l *Library) addCodeSystem(cs *codeSystem) {
	if cs.url == "" {
		return
	}
	cs.system = l.internSystem(cs.url)
	s := &l.systems[cs.system]
	index := uint32(len(l.codeSystems))
	same := slices.IndexFunc(s.versions, func(id uint32) bool { return l.codeSystems[id].version == cs.version })
	if same >= 0 {
		index = s.versions[same]
		s.versions = slices.Delete(s.versions, same, same+1)
		l.codeSystems[index] = cs
		l.replacements++
	} else {
		l.codeSystems = append(l.codeSystems, cs)
	}
	s.versions = append(s.versions, index)
	s.current = l.currentVersion(s.versions)
}

// currentVersion chooses the code system that a reference without a version means: the latest version
// of those that have concepts. Of two whose versions cannot be compared, the later loaded one is taken.
func (l *Library) currentVersion(versions []uint32) uint32 {
	current := versions[0]
	for _, id := range versions[1:] {
		old, candidate := l.codeSystems[current], l.codeSystems[id]
		if old.content.hasConcepts() != candidate.content.hasConcepts() {
			if candidate.content.hasConcepts() {
				current = id
			}
		} else if supersedes(candidate.version, old.version) {
			current = id
		}
	}
	return current
}

// supersedes reports whether a definition that was loaded later is to be preferred to an earlier one, by
// their versions. A date and a number cannot be compared: HL7's v3 code systems went from 2018-08-12 to
// 2.0.0.
func supersedes(later, earlier string) bool {
	if later == "" || earlier == "" || isDate(later) != isDate(earlier) {
		return true
	}
	return compareVersions(later, earlier) >= 0
}

// addValueSet adds a value set. One with the same url and version is replaced.
func (l *Library) addValueSet(vs *valueSet) {
	if vs.url == "" {
		return
	}
	key := vs.url + "|" + vs.version
	if old, ok := l.byCanonical[key]; ok {
		*old = *vs
		vs = old
		l.replacements++
	} else {
		l.byCanonical[key] = vs
		l.valueSets = append(l.valueSets, vs)
	}
	if old, ok := l.latest[vs.url]; !ok || supersedes(vs.version, old.version) {
		l.latest[vs.url] = vs
	}
}

// valueSet finds a value set by its canonical: url or url|version.
func (l *Library) valueSet(reference string) (*valueSet, bool) {
	url, version := splitCanonical(reference)
	if version == "" {
		vs, ok := l.latest[url]
		return vs, ok
	}
	vs, ok := l.byCanonical[url+"|"+version]
	return vs, ok
}

// codeSystem finds a code system by its url and, unless it is empty, its version. The index is none if
// it is not here.
func (l *Library) codeSystem(url, version string) uint32 {
	id, ok := l.systemIDs[url]
	if !ok {
		return none
	}
	if version == "" {
		return l.systems[id].current
	}
	for _, index := range l.systems[id].versions {
		if l.codeSystems[index].version == version {
			return index
		}
	}
	return none
}

// missingCodeSystem says what is missing of a code system that cannot be used.
func (l *Library) missingCodeSystem(url, version string) error {
	if index := l.codeSystem(url, version); index != none {
		cs := l.codeSystems[index]
		return incomplete("not-found", "the content of code system %s is not here (it is %q)", cs.canonical(), cs.content)
	}
	if index := l.codeSystem(url, ""); index != none && l.codeSystems[index].content.hasConcepts() {
		return incomplete("not-found", "code system %s is not here in version %q, but in version %q",
			url, version, l.codeSystems[index].version)
	}
	return incomplete("not-found", "code system %s is not here", canonical(url, version))
}

// String says what the library holds.
func (c Counts) String() string {
	return fmt.Sprintf("%d code systems, %d concepts, %d value sets", c.CodeSystems, c.Concepts, c.ValueSets)
}
