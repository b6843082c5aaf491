package definitions

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// ConceptMap holds of a ConceptMap what $translate needs.
type ConceptMap struct {
	Definition
	SourceScope, TargetScope string     // canonicals of value sets
	Groups                   []MapGroup // ConceptMap.group
}

// MapGroup is one of ConceptMap.group.
type MapGroup struct {
	Source, SourceVersion string       // the code system that is mapped
	Target, TargetVersion string       // the one that it is mapped to
	Elements              []MapElement // ConceptMap.group.element
	Unmapped              unmapped     // ConceptMap.group.unmapped
}

// unmapped is ConceptMap.group.unmapped, absent if it has no mode.
type unmapped struct {
	Mode                       string // provided (in R5 use-source-code), fixed or other-map
	Code, Display, Equivalence string // of fixed
	OtherMap                   string // canonical
}

// MapElement is ConceptMap.group.element.
type MapElement struct {
	Code, Display, Comment string      // members of these names
	Targets                []MapTarget // ConceptMap.group.element.target
}

// MapTarget is ConceptMap.group.element.target. One without a code says that the element maps to nothing.
type MapTarget struct {
	Code, Display, Equivalence, Comment string         // members of these names
	DependsOn, Products                 []MapAttribute // other elements that it depends on, or also produces
}

// MapAttribute is ConceptMap.group.element.target.dependsOn or product.
type MapAttribute struct {
	Property, System, Value, Display string // members of these names
}

// member reads one member of a ConceptMap, by its name in R4 or R5.
func (m *ConceptMap) member(r *fhirjson.Reader, name string) error {
	if known, err := m.Definition.member(r, name); known {
		return err
	}
	switch name {
	case "sourceUri", "sourceCanonical", "sourceScopeUri", "sourceScopeCanonical":
		return r.ReadString(&m.SourceScope)
	case "targetUri", "targetCanonical", "targetScopeUri", "targetScopeCanonical":
		return r.ReadString(&m.TargetScope)
	case "group":
		return r.ArrayOf(shortPart, func() error { return m.group(r) })
	}
	return r.Skip()
}

// group reads one of ConceptMap.group. Its systems may be url|version.
func (m *ConceptMap) group(r *fhirjson.Reader) error {
	var g MapGroup
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "element":
			return r.ArrayOf(shortPart, func() error { return g.element(r) })
		case "unmapped":
			u := &g.Unmapped
			return r.Strings(
				fhirjson.String{Name: "mode", Into: &u.Mode}, fhirjson.String{Name: "code", Into: &u.Code},
				fhirjson.String{Name: "display", Into: &u.Display}, fhirjson.String{Name: "relationship", Into: &u.Equivalence},
				fhirjson.String{Name: "url", Into: &u.OtherMap}, fhirjson.String{Name: "otherMap", Into: &u.OtherMap},
			)
		}
		return r.Skip()
	},
		fhirjson.String{Name: "source", Into: &g.Source}, fhirjson.String{Name: "sourceVersion", Into: &g.SourceVersion},
		fhirjson.String{Name: "target", Into: &g.Target}, fhirjson.String{Name: "targetVersion", Into: &g.TargetVersion},
	)
	if url, version := outcome.Split(g.Source); version != "" {
		g.Source, g.SourceVersion = url, version
	}
	if url, version := outcome.Split(g.Target); version != "" {
		g.Target, g.TargetVersion = url, version
	}
	m.Groups = append(m.Groups, g)
	return err
}

// element reads one of ConceptMap.group.element. R5's noMap becomes R4's target without a code.
func (g *MapGroup) element(r *fhirjson.Reader) error {
	var e MapElement
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "noMap":
			var none bool
			err := r.ReadBool(&none)
			if none {
				e.Targets = append(e.Targets, MapTarget{})
			}
			return err
		case "target":
			return r.ArrayOf(shortPart, func() error { return e.target(r) })
		}
		return r.Skip()
	},
		fhirjson.String{Name: "code", Into: &e.Code}, fhirjson.String{Name: "display", Into: &e.Display},
		fhirjson.String{Name: "comment", Into: &e.Comment},
	)
	g.Elements = append(g.Elements, e)
	return err
}

func (e *MapElement) target(r *fhirjson.Reader) error {
	var t MapTarget
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "dependsOn":
			return r.Array(func() error { return appendMapAttribute(&t.DependsOn, r) })
		case "product":
			return r.Array(func() error { return appendMapAttribute(&t.Products, r) })
		}
		return r.Skip()
	},
		fhirjson.String{Name: "code", Into: &t.Code}, fhirjson.String{Name: "display", Into: &t.Display},
		fhirjson.String{Name: "equivalence", Into: &t.Equivalence}, fhirjson.String{Name: "relationship", Into: &t.Equivalence},
		fhirjson.String{Name: "comment", Into: &t.Comment},
	)
	e.Targets = append(e.Targets, t)
	return err
}

func appendMapAttribute(list *[]MapAttribute, r *fhirjson.Reader) error {
	var a MapAttribute
	err := r.Strings(
		fhirjson.String{Name: "property", Into: &a.Property}, fhirjson.String{Name: "system", Into: &a.System},
		fhirjson.String{Name: "value", Into: &a.Value}, fhirjson.String{Name: "display", Into: &a.Display},
	)
	*list = append(*list, a)
	return err
}

// MapTable holds concept maps.
type MapTable struct {
	Lists   [][]*ConceptMap // those of each overlay, the uppermost first, and those that were loaded, in this order
	indexes layer[int]      // of those that were loaded, by url|version
	byID    idTable[*ConceptMap]
}

// over returns a table with the same concept maps, to which others can be added.
func (t *MapTable) over(beside bool) MapTable {
	return MapTable{Lists: append(make([][]*ConceptMap, 1), t.Lists...), byID: t.byID.over(beside)}
}

// ByID finds a concept map by its id.
func (t *MapTable) ByID(id string) (*ConceptMap, bool) { return t.byID.get(id) }

// addConceptMap adds a concept map. It replaces one with the same url and version if both are loaded.
func (t *MapTable) addConceptMap(m *ConceptMap) {
	list := &t.Lists[0]
	if len(t.Lists) == 1 && m.URL != "" {
		if i, ok := t.indexes.get(m.Canonical()); ok {
			t.byID.release((*list)[i])
			t.byID.claim(m)
			(*list)[i] = m
			return
		}
		t.indexes.put(m.Canonical(), len(*list))
	}
	t.byID.claim(m)
	*list = append(*list, m)
}

// ConceptMap finds a concept map by its canonical; the one loaded last counts.
func (t *MapTable) ConceptMap(reference string) (*ConceptMap, bool) {
	for _, list := range t.Lists {
		for _, m := range slices.Backward(list) {
			if m.IsNamed(reference) {
				return m, true
			}
		}
	}
	return nil, false
}

// Equivalences are R4's codes for relationships of R5, and for none.
var Equivalences = map[string]string{
	"": "relatedto", "related-to": "relatedto", "not-related-to": "disjoint",
	"source-is-narrower-than-target": "wider", "source-is-broader-than-target": "narrower",
}
