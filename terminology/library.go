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
	base           *Library // of an overlay: what it lies over
	beside         bool     // of an overlay: what it adds is no better than what it lies over
	loaded         time.Time
	importDepth    int
	maxGathered    int
	maxRegexStates int

	codeSystems []*codeSystem
	valueSets   []*valueSet
	conceptMaps []*conceptMap
	mapIndexes  map[string]int // url|version, of those that were loaded
	listed      listed

	systems      []system
	systemIDs    map[string]uint32
	byCanonical  map[string]*valueSet // url|version
	latest       map[string]*valueSet // url
	byID         map[string]*valueSet
	bindings     map[string]string    // StructureDefinition url#path to the canonical of a value set
	fragments    map[string]*valueSet // StructureDefinition url#id to a value set that it contains
	supplements  map[string][]uint32  // url of a code system to the supplements to it
	entire       map[string]uint32    // CodeSystem.valueSet to the code system
	expansions   *expansionCache
	inProgress   singleflight.Group
	replacements int
	brought      int // definitions that a request has brought along, contained ones among them
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
	c := Counts{ValueSets: len(l.valueSets), Replaced: l.replacements}
	for index, cs := range l.codeSystems {
		if !l.isContained(uint32(index)) {
			c.CodeSystems++
			c.Concepts += cs.len()
		}
	}
	return c
}

// internSystem returns the index of a code system's url.
func (l *Library) internSystem(url string) uint32 {
	id, ok := l.systemID(url)
	if !ok {
		id = uint32(len(l.systems))
		l.systems = append(l.systems, system{url: url, current: none})
		l.systemIDs[url] = id
	}
	return id
}

// systemID finds a code system's url.
func (l *Library) systemID(url string) (uint32, bool) {
	id, ok := l.systemIDs[url]
	if !ok && l.base != nil {
		return l.base.systemID(url)
	}
	return id, ok
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
	versions := make([]uint32, 0, len(s.versions)+1) // not in place: an overlay shares them with its base
	if same >= 0 {
		index = s.versions[same]
		versions = append(append(versions, s.versions[:same]...), s.versions[same+1:]...)
		l.codeSystems[index] = cs
		l.replacements++
	} else {
		versions = append(versions, s.versions...)
		l.codeSystems = append(l.codeSystems, cs)
	}
	s.versions = append(versions, index)
	s.current = l.currentVersion(s.versions)
	l.link(cs, index)
}

// link notes what a code system is in relation to others.
func (l *Library) link(cs *codeSystem, index uint32) {
	if url, _ := splitCanonical(cs.supplements); cs.content == contentSupplement && url != "" {
		if !slices.Contains(l.supplements[url], index) {
			l.supplements[url] = append(l.supplements[url], index)
		}
	}
	if cs.entireValueSet != "" {
		l.entire[cs.entireValueSet] = index
	}
}

// currentVersion chooses the code system that a reference without a version means: the latest version
// of those that have concepts. Of two whose versions cannot be compared, the later loaded one is taken.
func (l *Library) currentVersion(versions []uint32) uint32 {
	if own := slices.DeleteFunc(slices.Clone(versions), func(id uint32) bool { return !l.isOwn(id) }); len(own) > 0 {
		versions = own
	}
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
	if vs.id != "" {
		l.byID[vs.id] = vs
	}
	if vs.url == "" {
		return
	}
	key := vs.url + "|" + vs.version
	vs.key = key
	if l.beside {
		l.displace(key)
	}
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

// valueSet finds a value set by its canonical: url or url|version, where the version may have wildcards.
func (l *Library) valueSet(reference string) (*valueSet, bool) {
	url, version := splitCanonical(reference)
	var vs *valueSet
	switch {
	case version == "":
		vs = l.latest[url]
	case isWildcard(version):
		vs = l.latestMatching(url, version)
	default:
		vs = l.byCanonical[url+"|"+version]
	}
	if vs == nil && l.base != nil {
		return l.base.valueSet(reference)
	}
	return vs, vs != nil
}

// latestMatching finds the latest version of a value set that a version with wildcards matches.
func (l *Library) latestMatching(url, pattern string) *valueSet {
	var latest *valueSet
	for _, vs := range l.valueSets {
		if vs.url == url && matchesVersion(vs.version, pattern) && (latest == nil || supersedes(vs.version, latest.version)) {
			latest = vs
		}
	}
	return latest
}

// valueSetByID finds a value set by its id, of those with the same id the one that was loaded last.
func (l *Library) valueSetByID(id string) (*valueSet, bool) {
	vs, ok := l.byID[id]
	if !ok && l.base != nil {
		return l.base.valueSetByID(id)
	}
	return vs, ok
}

// codeSystem finds a code system by its url and, unless it is empty, its version, which may have
// wildcards. The index is none if it is not here.
func (l *Library) codeSystem(url, version string) uint32 {
	id, ok := l.systemID(url)
	if !ok {
		return none
	}
	if version == "" {
		return l.systems[id].current
	}
	found := none
	for _, index := range l.systems[id].versions {
		candidate := l.codeSystems[index].version
		if candidate == version {
			return index
		}
		if matchesVersion(candidate, version) && (found == none || supersedes(candidate, l.codeSystems[found].version)) {
			found = index
		}
	}
	return found
}

// countVersions returns how many versions of a code system are here.
func (l *Library) countVersions(url string) int {
	id, ok := l.systemID(url)
	if !ok {
		return 0
	}
	return len(l.systems[id].versions)
}

// codeSystemByID finds a code system by its id, of those with the same id the one that was loaded last.
func (l *Library) codeSystemByID(id string) (*codeSystem, bool) {
	for _, cs := range slices.Backward(l.codeSystems) {
		if cs.id == id {
			return cs, true
		}
	}
	return nil, false
}

// versionsOf returns the versions of a code system that are here with their concepts, in order.
func (l *Library) versionsOf(url string) []string {
	id, ok := l.systemID(url)
	if !ok {
		return nil
	}
	var versions []string
	for _, index := range l.systems[id].versions {
		if cs := l.codeSystems[index]; cs.version != "" && cs.content.hasConcepts() {
			versions = append(versions, cs.version)
		}
	}
	slices.SortFunc(versions, compareVersions)
	return versions
}

// supplementsTo returns the supplements to a code system: those that are language packs, and those that
// are named by a canonical of the list.
func (l *Library) supplementsTo(cs *codeSystem, named []string) []uint32 {
	var list []uint32
	for at := l; at != nil; at = at.base {
		for _, index := range at.supplements[cs.url] {
			s := l.codeSystems[index]
			_, version := splitCanonical(s.supplements)
			applies := version == "" || matchesVersion(cs.version, version)
			if applies && (s.languagePack || slices.ContainsFunc(named, s.definition.isNamed)) && !slices.Contains(list, index) {
				list = append(list, index)
			}
		}
	}
	return list
}

// isNamed reports whether a canonical means this definition.
func (d *definition) isNamed(reference string) bool {
	url, version := splitCanonical(reference)
	return url == d.url && (version == "" || matchesVersion(d.version, version))
}

// String says what the library holds.
func (c Counts) String() string {
	return fmt.Sprintf("%d code systems, %d concepts, %d value sets", c.CodeSystems, c.Concepts, c.ValueSets)
}
