package terminology

// conceptMap is a ConceptMap, as $translate needs it.
type conceptMap struct {
	definition
	sourceScope, targetScope string // canonicals of value sets
	groups                   []mapGroup
}

// mapGroup is one of ConceptMap.group.
type mapGroup struct {
	source, sourceVersion string
	target, targetVersion string
	elements              []mapElement
}

// mapElement is what a group says of one source code.
type mapElement struct {
	code    string
	targets []mapTarget
}

// mapTarget is one of ConceptMap.group.element.target.
type mapTarget struct{ code, display, equivalence, comment string }

// member reads one member of a ConceptMap. The names of R5 are understood beside those of R4.
func (m *conceptMap) member(r *reader, name string) error {
	if known, err := m.definition.member(r, name); known {
		return err
	}
	switch name {
	case "sourceUri", "sourceCanonical", "sourceScopeUri", "sourceScopeCanonical":
		return r.string(&m.sourceScope)
	case "targetUri", "targetCanonical", "targetScopeUri", "targetScopeCanonical":
		return r.string(&m.targetScope)
	case "group":
		return r.array(func() error { return m.group(r) })
	default:
		return r.skip()
	}
}

// group reads one of ConceptMap.group. Its systems may be url|version.
func (m *conceptMap) group(r *reader) error {
	var g mapGroup
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "source":
			return r.string(&g.source)
		case "sourceVersion":
			return r.string(&g.sourceVersion)
		case "target":
			return r.string(&g.target)
		case "targetVersion":
			return r.string(&g.targetVersion)
		case "element":
			return r.array(func() error { return g.element(r) })
		default:
			return r.skip()
		}
	})
	if url, version := splitCanonical(g.source); version != "" {
		g.source, g.sourceVersion = url, version
	}
	if url, version := splitCanonical(g.target); version != "" {
		g.target, g.targetVersion = url, version
	}
	m.groups = append(m.groups, g)
	return err
}

// element reads one of ConceptMap.group.element.
func (g *mapGroup) element(r *reader) error {
	var e mapElement
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "code":
			return r.string(&e.code)
		case "target":
			return r.array(func() error { return e.target(r) })
		default:
			return r.skip()
		}
	})
	g.elements = append(g.elements, e)
	return err
}

// target reads one of ConceptMap.group.element.target.
func (e *mapElement) target(r *reader) error {
	var t mapTarget
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "code":
			return r.string(&t.code)
		case "display":
			return r.string(&t.display)
		case "equivalence", "relationship":
			return r.string(&t.equivalence)
		case "comment":
			return r.string(&t.comment)
		default:
			return r.skip()
		}
	})
	e.targets = append(e.targets, t)
	return err
}

// addConceptMap adds a concept map; one with the same url and version is replaced, unless the two are sent
// along with a request, where both are meant.
func (l *Library) addConceptMap(m *conceptMap) {
	for i, old := range l.conceptMaps {
		if l.base == nil && m.url != "" && old.url == m.url && old.version == m.version {
			l.conceptMaps[i] = m
			return
		}
	}
	l.conceptMaps = append(l.conceptMaps, m)
}
