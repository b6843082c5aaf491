package terminology

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

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
	unmapped              unmapped
}

// unmapped is ConceptMap.group.unmapped; without a mode, there is none.
type unmapped struct {
	mode                       string // provided, fixed, other-map; R5 has use-source-code for provided
	code, display, equivalence string // of fixed
	otherMap                   string // canonical
}

// mapElement is what a group says of one source code.
type mapElement struct {
	code, display, comment string
	targets                []mapTarget
}

// mapTarget is one of ConceptMap.group.element.target. It has no code where there is none to map to.
type mapTarget struct {
	code, display, equivalence, comment string
	dependsOn, products                 []mapAttribute
}

// mapAttribute is one of ConceptMap.group.element.target.dependsOn or product: another element, with a value.
type mapAttribute struct{ property, system, value, display string }

// member reads one member of a ConceptMap. The names of R5 are understood beside those of R4.
func (m *conceptMap) member(r *fhirjson.Reader, name string) error {
	if known, err := m.definition.member(r, name); known {
		return err
	}
	switch name {
	case "sourceUri", "sourceCanonical", "sourceScopeUri", "sourceScopeCanonical":
		return r.ReadString(&m.sourceScope)
	case "targetUri", "targetCanonical", "targetScopeUri", "targetScopeCanonical":
		return r.ReadString(&m.targetScope)
	case "group":
		return r.ArrayOf(shortPart, func() error { return m.group(r) })
	default:
		return r.Skip()
	}
}

// group reads one of ConceptMap.group. Its systems may be url|version.
func (m *conceptMap) group(r *fhirjson.Reader) error {
	var g mapGroup
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "source":
			return r.ReadString(&g.source)
		case "sourceVersion":
			return r.ReadString(&g.sourceVersion)
		case "target":
			return r.ReadString(&g.target)
		case "targetVersion":
			return r.ReadString(&g.targetVersion)
		case "element":
			return r.ArrayOf(shortPart, func() error { return g.element(r) })
		case "unmapped":
			return g.unmapped.read(r)
		default:
			return r.Skip()
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

// read reads ConceptMap.group.unmapped.
func (u *unmapped) read(r *fhirjson.Reader) error {
	return r.Strings(
		fhirjson.String{Name: "mode", Into: &u.mode}, fhirjson.String{Name: "code", Into: &u.code},
		fhirjson.String{Name: "display", Into: &u.display}, fhirjson.String{Name: "relationship", Into: &u.equivalence},
		fhirjson.String{Name: "url", Into: &u.otherMap}, fhirjson.String{Name: "otherMap", Into: &u.otherMap},
	)
}

// element reads one of ConceptMap.group.element. That there is nothing to map to is said as R4 says it: by a target
// without a code.
func (g *mapGroup) element(r *fhirjson.Reader) error {
	var e mapElement
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "code":
			return r.ReadString(&e.code)
		case "display":
			return r.ReadString(&e.display)
		case "comment":
			return r.ReadString(&e.comment)
		case "noMap":
			var none bool
			err := r.ReadBool(&none)
			if none {
				e.targets = append(e.targets, mapTarget{})
			}
			return err
		case "target":
			return r.ArrayOf(shortPart, func() error { return e.target(r) })
		default:
			return r.Skip()
		}
	})
	g.elements = append(g.elements, e)
	return err
}

// target reads one of ConceptMap.group.element.target.
func (e *mapElement) target(r *fhirjson.Reader) error {
	var t mapTarget
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "code":
			return r.ReadString(&t.code)
		case "display":
			return r.ReadString(&t.display)
		case "equivalence", "relationship":
			return r.ReadString(&t.equivalence)
		case "comment":
			return r.ReadString(&t.comment)
		case "dependsOn":
			return r.Array(func() error { return appendMapAttribute(&t.dependsOn, r) })
		case "product":
			return r.Array(func() error { return appendMapAttribute(&t.products, r) })
		default:
			return r.Skip()
		}
	})
	e.targets = append(e.targets, t)
	return err
}

// appendMapAttribute reads one of dependsOn or product, and adds it to a list.
func appendMapAttribute(list *[]mapAttribute, r *fhirjson.Reader) error {
	var a mapAttribute
	err := r.Strings(
		fhirjson.String{Name: "property", Into: &a.property}, fhirjson.String{Name: "system", Into: &a.system},
		fhirjson.String{Name: "value", Into: &a.value}, fhirjson.String{Name: "display", Into: &a.display},
	)
	*list = append(*list, a)
	return err
}

// mapTable holds concept maps.
type mapTable struct {
	base        *mapTable // of an overlay: what it lies over
	conceptMaps []*conceptMap
	mapIndexes  map[string]int // url|version, of those that were loaded
}

// addConceptMap adds a concept map; one with the same url and version is replaced, unless the two are sent
// along with a request, where both are meant.
func (t *mapTable) addConceptMap(m *conceptMap) {
	if t.base == nil && m.url != "" {
		key := m.url + "|" + m.version
		if i, ok := t.mapIndexes[key]; ok {
			t.conceptMaps[i] = m
			return
		}
		if t.mapIndexes == nil {
			t.mapIndexes = make(map[string]int)
		}
		t.mapIndexes[key] = len(t.conceptMaps)
	}
	t.conceptMaps = append(t.conceptMaps, m)
}

// inlineConceptMap reads a concept map that a request holds. It needs no url.
func inlineConceptMap(resource jsontext.Value) (*conceptMap, error) {
	kind, err := fhirjson.ResourceType(resource)
	if err == nil && kind != "ConceptMap" {
		return nil, badRequest("invalid", "the parameter conceptMap must be a ConceptMap, not %s", kind)
	}
	l := emptyLibrary()
	if err == nil {
		err = newResourceLoader(l).resource(fhirjson.ReaderOf(resource))
	}
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Code: "structure", Err: err, Text: "the concept map cannot be read: " + err.Error()}
	}
	return l.conceptMaps[0], nil
}

// conceptMap finds a concept map by its canonical, of several the one that was loaded last.
func (t *mapTable) conceptMap(reference string) (*conceptMap, bool) {
	for at := t; at != nil; at = at.base {
		for _, m := range slices.Backward(at.conceptMaps) {
			if m.isNamed(reference) {
				return m, true
			}
		}
	}
	return nil, false
}
