package terminology

import "slices"

// systemTable holds code systems by url and version. An overlay's includes those of its base.
type systemTable struct {
	base     *systemTable // of an overlay: the table below
	combined bool         // of an overlay: what it adds takes no precedence over base

	codeSystems []*codeSystem
	systems     []system
	systemIDs   map[string]uint32
	supplements map[string][]uint32 // by url of the code system
	entire      map[string]uint32   // by CodeSystem.valueSet
	replaced    int                 // how many were, by later ones
}

// system is a code system's url with its versions.
type system struct {
	url      string
	versions []uint32 // indexes in systemTable.codeSystems, in the order of loading
	current  uint32   // what a reference without a version means, or none
}

// internSystem returns the index of a url, which it adds if need be.
func (t *systemTable) internSystem(url string) uint32 {
	id, ok := t.systemID(url)
	if !ok {
		id = uint32(len(t.systems))
		t.systems = append(t.systems, system{url: url, current: none})
		t.systemIDs[url] = id
	}
	return id
}

func (t *systemTable) systemID(url string) (uint32, bool) {
	id, ok := t.systemIDs[url]
	if !ok && t.base != nil {
		return t.base.systemID(url)
	}
	return id, ok
}

// addCodeSystem adds a code system, or replaces the one with the same url and version.
func (t *systemTable) addCodeSystem(cs *codeSystem) {
	if cs.url == "" {
		return
	}
	cs.system = t.internSystem(cs.url)
	s := &t.systems[cs.system]
	index := uint32(len(t.codeSystems))
	versions := slices.Clone(s.versions) // an overlay shares them with its base
	if same := slices.IndexFunc(versions, func(id uint32) bool { return t.codeSystems[id].version == cs.version }); same >= 0 {
		index = versions[same]
		versions = slices.Delete(versions, same, same+1)
		t.codeSystems[index] = cs
		t.replaced++
	} else {
		t.codeSystems = append(t.codeSystems, cs)
	}
	s.versions = append(versions, index)
	s.current = t.currentVersion(s.versions)
	t.link(cs, index)
}

// link records a supplement, and the value set of all codes.
func (t *systemTable) link(cs *codeSystem, index uint32) {
	url, _ := splitCanonical(cs.supplements)
	if cs.content == contentSupplement && url != "" && !slices.Contains(t.supplements[url], index) {
		t.supplements[url] = append(t.supplements[url], index)
	}
	if cs.entireValueSet != "" {
		t.entire[cs.entireValueSet] = index
	}
}

// currentVersion chooses what a reference without a version means: the latest version of those that have concepts, R4's
// frozen copies last. Of two versions that cannot be compared, the one loaded later wins.
func (t *systemTable) currentVersion(versions []uint32) uint32 {
	if own := slices.DeleteFunc(slices.Clone(versions), func(id uint32) bool { return !t.isOwn(id) }); len(own) > 0 {
		versions = own
	}
	current := versions[0]
	for _, id := range versions[1:] {
		old, candidate := t.codeSystems[current], t.codeSystems[id]
		had, has := old.content.hasConcepts(), candidate.content.hasConcepts()
		if has && !had || has == had && candidate.supersedes(old) {
			current = id
		}
	}
	return current
}

// codeSystem returns a code system by its url and, unless empty, its version, which may have wildcards; or none.
func (t *systemTable) codeSystem(url, version string) uint32 {
	id, ok := t.systemID(url)
	if !ok {
		return none
	}
	if version == "" {
		return t.systems[id].current
	}
	found := none
	for _, index := range t.systems[id].versions {
		candidate := t.codeSystems[index]
		if candidate.version == version {
			return index
		}
		if matchesVersion(candidate.version, version) && (found == none || candidate.supersedes(t.codeSystems[found])) {
			found = index
		}
	}
	return found
}

// versions returns the indexes of all versions of a code system, in loading order.
func (t *systemTable) versions(url string) []uint32 {
	if id, ok := t.systemID(url); ok {
		return t.systems[id].versions
	}
	return nil
}

// codeSystemByID finds a code system by its id. Of several, the one loaded last wins.
func (t *systemTable) codeSystemByID(id string) (*codeSystem, bool) {
	for _, cs := range slices.Backward(t.codeSystems) {
		if cs.id == id {
			return cs, true
		}
	}
	return nil, false
}

// versionsOf returns the versions of a code system that are here with concepts, in order.
func (t *systemTable) versionsOf(url string) []string {
	var versions []string
	for _, index := range t.versions(url) {
		if cs := t.codeSystems[index]; cs.version != "" && cs.content.hasConcepts() {
			versions = append(versions, cs.version)
		}
	}
	slices.SortFunc(versions, compareVersions)
	return versions
}

// supplementsTo returns the supplements to a code system: language packs, and those named by a canonical of the list.
func (t *systemTable) supplementsTo(cs *codeSystem, named []string) []uint32 {
	var list []uint32
	for at := t; at != nil; at = at.base {
		for _, index := range at.supplements[cs.url] {
			s := t.codeSystems[index]
			_, version := splitCanonical(s.supplements)
			applies := version == "" || matchesVersion(cs.version, version)
			if applies && (s.languagePack || slices.ContainsFunc(named, s.definition.isNamed)) {
				addTo(&list, index)
			}
		}
	}
	return list
}
