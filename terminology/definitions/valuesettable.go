package definitions

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// valueSetTable holds value sets by url and version, and what else names them.
type valueSetTable struct {
	List      []*ValueSet        // of an overlay for a request, only its own
	versions  layer[[]*ValueSet] // by url, in the order of loading
	byID      idTable[*ValueSet]
	bindings  layer[string]    // StructureDefinition url#path to the canonical of a value set
	fragments layer[*ValueSet] // StructureDefinition url#id to a value set that it contains
	replaced  int              // how many were, by later ones
}

// over returns a table with the same value sets, to which others can be added.
func (t *valueSetTable) over(beside bool) valueSetTable {
	o := valueSetTable{
		versions: t.versions.over(beside), byID: t.byID.over(beside), bindings: t.bindings.over(beside), fragments: t.fragments.over(beside),
	}
	if beside {
		o.List = slices.Clone(t.List)
	}
	return o
}

// addValueSet adds a value set, or replaces the one with the same url and version. One that the library below has too is
// not overwritten.
func (t *valueSetTable) addValueSet(vs *ValueSet) {
	if vs.URL == "" {
		t.byID.claim(vs)
		return
	}
	vs.Key = vs.URL + "|" + vs.Version
	versions, _ := t.versions.rival(vs.URL)
	versions = slices.Clone(versions)
	if same := slices.IndexFunc(versions, func(old *ValueSet) bool { return old.Version == vs.Version }); same >= 0 {
		old := versions[same]
		if !t.versions.beside {
			t.byID.release(old)
			*old = *vs
			t.byID.claim(old)
			t.replaced++
			return
		}
		versions = slices.Delete(versions, same, same+1)
		t.List = slices.DeleteFunc(t.List, func(vs *ValueSet) bool { return vs == old })
	}
	t.byID.claim(vs)
	t.versions.put(vs.URL, append(versions, vs))
	t.List = append(t.List, vs)
}

// Find finds a value set by its canonical, url or url|version; the version may have wildcards.
func (t *valueSetTable) Find(reference string) (*ValueSet, bool) {
	url, version := outcome.Split(reference)
	return t.latest(url, func(vs *ValueSet) bool { return version == "" || MatchesVersion(vs.Version, version) })
}

// at finds the latest version of a value set as of a date.
func (t *valueSetTable) at(url, date string) (*ValueSet, bool) {
	return t.latest(url, func(vs *ValueSet) bool { return IsBy(vs.Date, date) })
}

// latest finds the latest version of a value set for which is holds.
func (t *valueSetTable) latest(url string, is func(vs *ValueSet) bool) (latest *ValueSet, ok bool) {
	for at := &t.versions; at != nil && latest == nil; at = at.base {
		for _, vs := range at.own[url] {
			if is(vs) && (latest == nil || supersedes(vs.Version, latest.Version)) {
				latest = vs
			}
		}
	}
	return latest, latest != nil
}

// ValueSetByID finds a value set by its id.
func (t *valueSetTable) ValueSetByID(id string) (*ValueSet, bool) { return t.byID.get(id) }
