package definitions

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// SystemTable holds code systems by url and version. An overlay's includes those of its base.
type SystemTable struct {
	CodeSystems []*CodeSystem // all versions of all
	List        []System      // by url
	ids         layer[uint32] // indexes in List by url
	byID        idTable[*CodeSystem]
	supplements layer[[]uint32] // by url of the code system
	entire      layer[uint32]   // by CodeSystem.valueSet
	byValue     []uint32        // indexes in List of sources that imply value sets by a value
	replaced    int             // how many were, by later ones
	brought     map[uint32]bool // the code systems of requests; nil: there is no request
}

// over returns a table with the same code systems, to which others can be added.
func (t *SystemTable) over(beside bool) SystemTable {
	o := SystemTable{
		CodeSystems: slices.Clone(t.CodeSystems), List: slices.Clone(t.List),
		ids: t.ids.over(beside), byID: t.byID.over(beside), supplements: t.supplements.over(beside), entire: t.entire.over(beside),
		byValue: slices.Clip(t.byValue),
	}
	if !beside {
		o.brought = make(map[uint32]bool)
		maps.Copy(o.brought, t.brought)
	}
	return o
}

// System is a code system's url with its versions.
type System struct {
	URL      string   // of the code system
	Versions []uint32 // indexes in systemTable.codeSystems, in the order of loading
	Current  uint32   // what a reference without a version means, or none
}

// internSystem returns the index of a url, which it adds if need be.
func (t *SystemTable) internSystem(url string) uint32 {
	id, ok := t.SystemID(url)
	if !ok {
		id = uint32(len(t.List))
		t.List = append(t.List, System{URL: url, Current: None})
		t.ids.put(url, id)
	}
	return id
}

// SystemID returns the index of a url in List.
func (t *SystemTable) SystemID(url string) (uint32, bool) { return t.ids.get(url) }

// AddCodeSystem adds a code system, or replaces the one with the same url and version. A built-in one stays if
// [contentMode.replaces] says so.
func (t *SystemTable) AddCodeSystem(cs *CodeSystem) {
	if cs.URL == "" {
		return
	}
	cs.system = t.internSystem(cs.URL)
	s := &t.List[cs.system]
	index := uint32(len(t.CodeSystems))
	versions := slices.Clone(s.Versions) // an overlay shares them with its base
	same := slices.IndexFunc(versions, func(id uint32) bool { return t.CodeSystems[id].Version == cs.Version })
	if same >= 0 && !cs.builtIn && t.CodeSystems[versions[same]].builtIn && !cs.Content.replaces(t.CodeSystems[versions[same]].Content) {
		return
	}
	if same >= 0 {
		index = versions[same]
		t.byID.release(t.CodeSystems[index])
		versions = slices.Delete(versions, same, same+1)
		t.CodeSystems[index] = cs
		t.replaced++
	} else {
		t.CodeSystems = append(t.CodeSystems, cs)
	}
	t.byID.claim(cs)
	if t.brought != nil {
		t.brought[index] = true
	}
	s.Versions = append(versions, index)
	s.Current = t.currentVersion(s.Versions)
	t.link(cs, index)
}

// link records a supplement, and the value sets that a code system implies.
func (t *SystemTable) link(cs *CodeSystem, index uint32) {
	url, _ := outcome.Split(cs.supplements)
	if list, _ := t.supplements.rival(url); cs.Content == ContentSupplement && url != "" && !slices.Contains(list, index) {
		t.supplements.put(url, append(slices.Clip(list), index))
	}
	if cs.entireValueSet != "" {
		t.entire.put(cs.entireValueSet, index)
	}
	if cs.byValue != "" {
		AddTo(&t.byValue, cs.system)
	}
}

// hasReplacement reports whether a version of a code system takes the place of a built-in one with the given content.
func (t *SystemTable) hasReplacement(url string, builtIn contentMode) bool {
	return slices.ContainsFunc(t.Versions(url), func(id uint32) bool { return t.CodeSystems[id].Content.replaces(builtIn) })
}

// withoutReplaced returns, of versions with a built-in one, those that take its place or, if there are none, the built-in
// one.
func (t *SystemTable) withoutReplaced(versions []uint32) []uint32 {
	at := slices.IndexFunc(versions, func(id uint32) bool {
		return t.CodeSystems[id].builtIn && t.CodeSystems[id].Content != ContentStandIn
	})
	if at < 0 {
		return versions
	}
	content := t.CodeSystems[versions[at]].Content
	others := slices.DeleteFunc(slices.Clone(versions), func(id uint32) bool {
		return t.CodeSystems[id].builtIn || !t.CodeSystems[id].Content.replaces(content)
	})
	if len(others) == 0 {
		return versions[at : at+1]
	}
	return others
}

// currentVersion chooses what a reference without a version means: the latest version of those that have concepts, R4's
// frozen copies last. Of two versions that cannot be compared, the one loaded later wins.
func (t *SystemTable) currentVersion(versions []uint32) uint32 {
	versions = t.withoutReplaced(versions)
	known := slices.ContainsFunc(versions, func(id uint32) bool { return t.CodeSystems[id].builtIn })
	own := slices.DeleteFunc(slices.Clone(versions), func(id uint32) bool {
		return !t.IsOwn(id) || known && !t.CodeSystems[id].Content.HasConcepts()
	})
	if len(own) > 0 {
		versions = own
	}
	current := versions[0]
	for _, id := range versions[1:] {
		old, candidate := t.CodeSystems[current], t.CodeSystems[id]
		had, has := old.Content.HasConcepts(), candidate.Content.HasConcepts()
		if has && !had || has == had && candidate.supersedes(old) {
			current = id
		}
	}
	return current
}

// CodeSystem returns a code system by its url and, unless empty, its version, which may have wildcards; or none.
func (t *SystemTable) CodeSystem(url, version string) uint32 {
	id, ok := t.SystemID(url)
	if !ok {
		return None
	}
	if version == "" {
		return t.List[id].Current
	}
	found := None
	for _, index := range t.List[id].Versions {
		candidate := t.CodeSystems[index]
		if candidate.Version == version {
			return index
		}
		if MatchesVersion(candidate.Version, version) && (found == None || candidate.supersedes(t.CodeSystems[found])) {
			found = index
		}
	}
	return found
}

// Versions returns the indexes of all versions of a code system, in loading order.
func (t *SystemTable) Versions(url string) []uint32 {
	if id, ok := t.SystemID(url); ok {
		return t.List[id].Versions
	}
	return nil
}

// ByID finds a code system by its id.
func (t *SystemTable) ByID(id string) (*CodeSystem, bool) { return t.byID.get(id) }

// VersionsOf returns the versions of a code system that are here with concepts, in order.
func (t *SystemTable) VersionsOf(url string) []string {
	var versions []string
	for _, index := range t.Versions(url) {
		if cs := t.CodeSystems[index]; cs.Version != "" && cs.Content.HasConcepts() {
			versions = append(versions, cs.Version)
		}
	}
	slices.SortFunc(versions, CompareVersions)
	return versions
}

// MissingCodeSystem is the error for a code system that is not here, or not with its content.
func (t *SystemTable) MissingCodeSystem(url, version string) error {
	if index := t.CodeSystem(url, version); index != None {
		cs := t.CodeSystems[index]
		e := outcome.Incomplete("business-rule", "the content of code system %s is not here (it is %q)", cs.Canonical(), cs.Content)
		if cs.Content == ContentStandIn {
			e.Text = fmt.Sprintf("the content of code system %s is not here but for the %s, which says what some codes are and not which there are: load an edition", url, cs.Name)
		}
		e.TxCode, e.Missing = "invalid", outcome.MissingOf("CodeSystem", url, version)
		return e
	}
	text, id := fmt.Sprintf("A definition for CodeSystem '%s' could not be found, so the value set cannot be expanded", url), "UNKNOWN_CODESYSTEM_EXP"
	if version != "" {
		id = "UNKNOWN_CODESYSTEM_VERSION_EXP"
		text = fmt.Sprintf("A definition for CodeSystem '%s' version '%s' could not be found, so the value set cannot be expanded. %s",
			url, version, ValidVersions(t.VersionsOf(url)))
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", id, text)
	e.Err, e.Missing = outcome.ErrIncomplete, outcome.MissingOf("CodeSystem", url, version)
	return e
}

// ValidVersions tells people which versions of a code system are here.
func ValidVersions(versions []string) string {
	switch n := len(versions); n {
	case 0:
		return "No versions of this code system are known"
	case 1:
		return "Valid versions: " + versions[0]
	default:
		return "Valid versions: " + strings.Join(versions[:n-1], ", ") + " or " + versions[n-1]
	}
}

// CodeSystemAt returns the latest version of a code system as of a date. Without one, that is an error, unless nothing here
// refers to the code system at all.
func (t *SystemTable) CodeSystemAt(url, date string) (uint32, error) {
	id, ok := t.SystemID(url)
	if !ok {
		return None, nil
	}
	old := slices.DeleteFunc(slices.Clone(t.List[id].Versions), func(index uint32) bool { return !IsBy(t.CodeSystems[index].Date, date) })
	if len(old) == 0 {
		return None, NotAsOf("code system", url, date)
	}
	return t.currentVersion(old), nil
}

// IsOwn reports whether a code system came with a request.
func (t *SystemTable) IsOwn(index uint32) bool { return t.brought[index] }

// hl7Terminology is how the urls begin of the code systems that HL7 maintains in a package of its own (hl7.terminology). R4
// has copies as they were, with versions of R4 or of HL7 V2, which say nothing beside those of the package.
const hl7Terminology = "http://terminology.hl7.org/"

// freeze notes which of the built-in code systems are such copies. Value sets are not: many of the package name a version
// of their code system that it no longer has.
func (t *SystemTable) freeze() {
	for _, cs := range t.CodeSystems {
		cs.frozen = strings.HasPrefix(cs.URL, hl7Terminology)
	}
}
