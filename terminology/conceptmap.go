package terminology

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// conceptMap holds of a ConceptMap what $translate needs.
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

// unmapped is ConceptMap.group.unmapped, absent if it has no mode.
type unmapped struct {
	mode                       string // provided (in R5 use-source-code), fixed or other-map
	code, display, equivalence string // of fixed
	otherMap                   string // canonical
}

// mapElement is ConceptMap.group.element.
type mapElement struct {
	code, display, comment string
	targets                []mapTarget
}

// mapTarget is ConceptMap.group.element.target. One without a code says that the element maps to nothing.
type mapTarget struct {
	code, display, equivalence, comment string
	dependsOn, products                 []mapAttribute
}

// mapAttribute is ConceptMap.group.element.target.dependsOn or product.
type mapAttribute struct{ property, system, value, display string }

// member reads one member of a ConceptMap, by its name in R4 or R5.
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
	}
	return r.Skip()
}

// group reads one of ConceptMap.group. Its systems may be url|version.
func (m *conceptMap) group(r *fhirjson.Reader) error {
	var g mapGroup
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "element":
			return r.ArrayOf(shortPart, func() error { return g.element(r) })
		case "unmapped":
			u := &g.unmapped
			return r.Strings(
				fhirjson.String{Name: "mode", Into: &u.mode}, fhirjson.String{Name: "code", Into: &u.code},
				fhirjson.String{Name: "display", Into: &u.display}, fhirjson.String{Name: "relationship", Into: &u.equivalence},
				fhirjson.String{Name: "url", Into: &u.otherMap}, fhirjson.String{Name: "otherMap", Into: &u.otherMap},
			)
		}
		return r.Skip()
	},
		fhirjson.String{Name: "source", Into: &g.source}, fhirjson.String{Name: "sourceVersion", Into: &g.sourceVersion},
		fhirjson.String{Name: "target", Into: &g.target}, fhirjson.String{Name: "targetVersion", Into: &g.targetVersion},
	)
	if url, version := splitCanonical(g.source); version != "" {
		g.source, g.sourceVersion = url, version
	}
	if url, version := splitCanonical(g.target); version != "" {
		g.target, g.targetVersion = url, version
	}
	m.groups = append(m.groups, g)
	return err
}

// element reads one of ConceptMap.group.element. R5's noMap becomes R4's target without a code.
func (g *mapGroup) element(r *fhirjson.Reader) error {
	var e mapElement
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "noMap":
			var none bool
			err := r.ReadBool(&none)
			if none {
				e.targets = append(e.targets, mapTarget{})
			}
			return err
		case "target":
			return r.ArrayOf(shortPart, func() error { return e.target(r) })
		}
		return r.Skip()
	},
		fhirjson.String{Name: "code", Into: &e.code}, fhirjson.String{Name: "display", Into: &e.display},
		fhirjson.String{Name: "comment", Into: &e.comment},
	)
	g.elements = append(g.elements, e)
	return err
}

func (e *mapElement) target(r *fhirjson.Reader) error {
	var t mapTarget
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "dependsOn":
			return r.Array(func() error { return appendMapAttribute(&t.dependsOn, r) })
		case "product":
			return r.Array(func() error { return appendMapAttribute(&t.products, r) })
		}
		return r.Skip()
	},
		fhirjson.String{Name: "code", Into: &t.code}, fhirjson.String{Name: "display", Into: &t.display},
		fhirjson.String{Name: "equivalence", Into: &t.equivalence}, fhirjson.String{Name: "relationship", Into: &t.equivalence},
		fhirjson.String{Name: "comment", Into: &t.comment},
	)
	e.targets = append(e.targets, t)
	return err
}

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

// addConceptMap adds a concept map. It replaces one with the same url and version, unless both are sent with a request.
func (t *mapTable) addConceptMap(m *conceptMap) {
	if t.base == nil && m.url != "" {
		key := m.url + "|" + m.version
		if i, ok := t.mapIndexes[key]; ok {
			t.conceptMaps[i] = m
			return
		}
		t.mapIndexes[key] = len(t.conceptMaps)
	}
	t.conceptMaps = append(t.conceptMaps, m)
}

// inlineConceptMap reads the parameter conceptMap, which needs no url.
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

// conceptMap finds a concept map by its canonical; the one loaded last counts.
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
