package terminology

// valueSetTable holds value sets by url and version, and what else names them.
type valueSetTable struct {
	base     *valueSetTable // of an overlay: the table below
	combined bool           // of an overlay: what it adds takes no precedence over base

	valueSets   []*valueSet
	byCanonical map[string]*valueSet // by url|version
	latest      map[string]*valueSet // by url
	byID        map[string]*valueSet
	bindings    map[string]string    // StructureDefinition url#path to the canonical of a value set
	fragments   map[string]*valueSet // StructureDefinition url#id to a value set that it contains
	replaced    int                  // how many were, by later ones
}

// addValueSet adds a value set, or replaces the one with the same url and version.
func (t *valueSetTable) addValueSet(vs *valueSet) {
	if vs.id != "" {
		t.byID[vs.id] = vs
	}
	if vs.url == "" {
		return
	}
	key := vs.url + "|" + vs.version
	vs.key = key
	if t.combined {
		t.displace(key)
	}
	if old, ok := t.byCanonical[key]; ok {
		*old = *vs
		vs = old
		t.replaced++
	} else {
		t.byCanonical[key] = vs
		t.valueSets = append(t.valueSets, vs)
	}
	if old, ok := t.latest[vs.url]; !ok || supersedes(vs.version, old.version) {
		t.latest[vs.url] = vs
	}
}

// valueSet finds a value set by its canonical, url or url|version; the version may have wildcards.
func (t *valueSetTable) valueSet(reference string) (*valueSet, bool) {
	url, version := splitCanonical(reference)
	var vs *valueSet
	switch {
	case version == "":
		vs = t.latest[url]
	case isWildcard(version):
		vs = t.latestOf(url, func(vs *valueSet) bool { return matchesVersion(vs.version, version) })
	default:
		vs = t.byCanonical[url+"|"+version]
	}
	if vs == nil && t.base != nil {
		return t.base.valueSet(reference)
	}
	return vs, vs != nil
}

// latestOf returns the latest version of a value set for which is holds, or nil.
func (t *valueSetTable) latestOf(url string, is func(vs *valueSet) bool) (latest *valueSet) {
	for _, vs := range t.valueSets {
		if vs.url == url && is(vs) && (latest == nil || supersedes(vs.version, latest.version)) {
			latest = vs
		}
	}
	return latest
}

// valueSetByID finds a value set by its id. Of several, the one loaded last wins.
func (t *valueSetTable) valueSetByID(id string) (*valueSet, bool) {
	vs, ok := t.byID[id]
	if !ok && t.base != nil {
		return t.base.valueSetByID(id)
	}
	return vs, ok
}
