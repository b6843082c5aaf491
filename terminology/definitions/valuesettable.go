package definitions

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// valueSetTable holds value sets by url and version, and what else names them.
type valueSetTable struct {
	base     *valueSetTable // of an overlay: the table below
	combined bool           // of an overlay: what it adds takes no precedence over base

	List        []*ValueSet
	byCanonical map[string]*ValueSet // by url|version
	latest      map[string]*ValueSet // by url
	byID        map[string]*ValueSet
	bindings    map[string]string    // StructureDefinition url#path to the canonical of a value set
	fragments   map[string]*ValueSet // StructureDefinition url#id to a value set that it contains
	replaced    int                  // how many were, by later ones
}

// addValueSet adds a value set, or replaces the one with the same url and version.
func (t *valueSetTable) addValueSet(vs *ValueSet) {
	if vs.ID != "" {
		t.byID[vs.ID] = vs
	}
	if vs.URL == "" {
		return
	}
	key := vs.URL + "|" + vs.Version
	vs.Key = key
	if t.combined {
		t.displace(key)
	}
	if old, ok := t.byCanonical[key]; ok {
		*old = *vs
		vs = old
		t.replaced++
	} else {
		t.byCanonical[key] = vs
		t.List = append(t.List, vs)
	}
	if old, ok := t.latest[vs.URL]; !ok || supersedes(vs.Version, old.Version) {
		t.latest[vs.URL] = vs
	}
}

// Find finds a value set by its canonical, url or url|version; the version may have wildcards.
func (t *valueSetTable) Find(reference string) (*ValueSet, bool) {
	url, version := outcome.Split(reference)
	var vs *ValueSet
	switch {
	case version == "":
		vs = t.latest[url]
	case IsWildcard(version):
		vs = t.latestOf(url, func(vs *ValueSet) bool { return MatchesVersion(vs.Version, version) })
	default:
		vs = t.byCanonical[url+"|"+version]
	}
	if vs == nil && t.base != nil {
		return t.base.Find(reference)
	}
	return vs, vs != nil
}

// latestOf returns the latest version of a value set for which is holds, or nil.
func (t *valueSetTable) latestOf(url string, is func(vs *ValueSet) bool) (latest *ValueSet) {
	for _, vs := range t.List {
		if vs.URL == url && is(vs) && (latest == nil || supersedes(vs.Version, latest.Version)) {
			latest = vs
		}
	}
	return latest
}

// ValueSetByID finds a value set by its id. Of several, the one loaded last wins.
func (t *valueSetTable) ValueSetByID(id string) (*ValueSet, bool) {
	vs, ok := t.byID[id]
	if !ok && t.base != nil {
		return t.base.ValueSetByID(id)
	}
	return vs, ok
}

// displace removes a value set that is about to be replaced. It must not be overwritten, as the library below has it too.
func (t *valueSetTable) displace(key string) {
	if old, ok := t.byCanonical[key]; ok {
		delete(t.byCanonical, key)
		t.List = slices.DeleteFunc(t.List, func(vs *ValueSet) bool { return vs == old })
	}
}
