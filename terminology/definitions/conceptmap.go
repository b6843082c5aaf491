package definitions

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// ConceptMap contains the members of a ConceptMap that $translate uses.
type ConceptMap struct {
	Definition
	SourceScope, TargetScope string     // canonicals of value sets
	Groups                   []MapGroup // ConceptMap.group
}

// MapGroup is an entry of ConceptMap.group.
type MapGroup struct {
	Source, SourceVersion string       // code system of the source codes
	Target, TargetVersion string       // code system of the target codes
	Elements              []MapElement // ConceptMap.group.element
	Unmapped              unmapped     // ConceptMap.group.unmapped
}

// unmapped is ConceptMap.group.unmapped; Mode is empty if it is absent.
type unmapped struct {
	Mode                       string // provided (in R5 use-source-code), fixed or other-map
	Code, Display, Equivalence string // members for the mode fixed
	OtherMap                   string // canonical, for the mode other-map
}

// MapElement is ConceptMap.group.element.
type MapElement struct {
	Code, Display, Comment string      // members of the same names
	Targets                []MapTarget // ConceptMap.group.element.target
}

// MapTarget is ConceptMap.group.element.target. A target without a code means that the element has no mapping.
type MapTarget struct {
	Code, Display, Equivalence, Comment string         // members of the same names
	DependsOn, Products                 []MapAttribute // ConceptMap.group.element.target.dependsOn and product
}

// MapAttribute is ConceptMap.group.element.target.dependsOn or product.
type MapAttribute struct {
	Property, System, Value, Display string // members of the same names
}

// member reads a member of a ConceptMap by its R4 or R5 name.
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

// group reads an entry of ConceptMap.group. source and target may have the form url|version.
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

// element reads an entry of ConceptMap.group.element. R5's noMap becomes R4's target without a code.
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

// MapTable indexes concept maps by canonical and ID.
type MapTable struct {
	Lists   [][]*ConceptMap // concept maps of each overlay, uppermost first, then the loaded ones in loading order
	indexes layer[int]      // indexes of loaded concept maps by url|version
	byID    idTable[*ConceptMap]
}

// over returns an empty overlay of the table.
func (t *MapTable) over(beside bool) MapTable {
	return MapTable{Lists: append(make([][]*ConceptMap, 1), t.Lists...), byID: t.byID.over(beside)}
}

// ByID returns the concept map with an ID.
func (t *MapTable) ByID(id string) (*ConceptMap, bool) { return t.byID.get(id) }

// addConceptMap adds a concept map. Among loaded ones, it replaces a concept map with the same URL and version.
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

// ConceptMap returns the concept map with a canonical. If several match, the last one loaded wins.
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

// Equivalences maps relationships of R5, and a missing relationship, to R4's codes.
var Equivalences = map[string]string{
	"": "relatedto", "related-to": "relatedto", "not-related-to": "disjoint",
	"source-is-narrower-than-target": "wider", "source-is-broader-than-target": "narrower",
}
