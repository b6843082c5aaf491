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
	Elements              []MapElement // ConceptMap.group.element; unused if Find is set
	Unmapped              unmappedRule // ConceptMap.group.unmapped

	// Find returns the elements with a source code or, if reverse is set, with a target code. It charges the cost with spend.
	// Groups of maps that a release implies have it instead of Elements.
	Find func(code string, reverse bool, spend func(steps int) error) ([]MapElement, error)
}

// ElementsWith returns the elements that may contain a code: those with it if Find is set, or else all. The other parameters are
// those of Find.
func (g *MapGroup) ElementsWith(code string, reverse bool, spend func(steps int) error) ([]MapElement, error) {
	if g.Find == nil {
		return g.Elements, nil
	}
	return g.Find(code, reverse, spend)
}

// unmappedRule is ConceptMap.group.unmapped; Mode is empty if it is absent.
type unmappedRule struct {
	Mode                       string // "provided" (R5: "use-source-code"), "fixed" or "other-map"
	Code, Display, Equivalence string // members of the same names, for mode "fixed"
	OtherMap                   string // canonical of another concept map, for mode "other-map"
}

// MapElement is ConceptMap.group.element.
type MapElement struct {
	Code, Display, Comment string      // members of the same names
	Targets                []MapTarget // ConceptMap.group.element.target
}

// MapTarget is ConceptMap.group.element.target. A target without a code states that there is no mapping.
type MapTarget struct {
	Code, Display, Equivalence, Comment string         // members of the same names
	DependsOn, Products                 []MapAttribute // ConceptMap.group.element.target.dependsOn and .product
}

// MapAttribute is ConceptMap.group.element.target.dependsOn or product.
type MapAttribute struct {
	Property, System, Value, Display string // members of the same names
}

// readMember reads a member of a ConceptMap by its R4 or R5 name.
func (m *ConceptMap) readMember(r *fhirjson.Reader, name string) error {
	if known, err := m.Definition.readMember(r, name); known {
		return err
	}
	switch name {
	case "sourceUri", "sourceCanonical", "sourceScopeUri", "sourceScopeCanonical":
		return r.ReadString(&m.SourceScope)
	case "targetUri", "targetCanonical", "targetScopeUri", "targetScopeCanonical":
		return r.ReadString(&m.TargetScope)
	case "group":
		return r.ArrayOf(smallPartSize, func() error { return m.readGroup(r) })
	}
	return r.Skip()
}

// readGroup reads an entry of ConceptMap.group. source and target may have the form url|version.
func (m *ConceptMap) readGroup(r *fhirjson.Reader) error {
	var g MapGroup
	err := r.ObjectWith(func(name []byte) error {
		switch string(name) {
		case "element":
			return r.ArrayOf(smallPartSize, func() error { return g.readElement(r) })
		case "unmapped":
			u := &g.Unmapped
			return r.Strings(
				fhirjson.String{Name: "mode", Destination: &u.Mode}, fhirjson.String{Name: "code", Destination: &u.Code},
				fhirjson.String{Name: "display", Destination: &u.Display}, fhirjson.String{Name: "relationship", Destination: &u.Equivalence},
				fhirjson.String{Name: "url", Destination: &u.OtherMap}, fhirjson.String{Name: "otherMap", Destination: &u.OtherMap},
			)
		}
		return r.Skip()
	},
		fhirjson.String{Name: "source", Destination: &g.Source}, fhirjson.String{Name: "sourceVersion", Destination: &g.SourceVersion},
		fhirjson.String{Name: "target", Destination: &g.Target}, fhirjson.String{Name: "targetVersion", Destination: &g.TargetVersion},
	)
	if url, version := outcome.SplitCanonical(g.Source); version != "" {
		g.Source, g.SourceVersion = url, version
	}
	if url, version := outcome.SplitCanonical(g.Target); version != "" {
		g.Target, g.TargetVersion = url, version
	}
	m.Groups = append(m.Groups, g)
	return err
}

// readElement reads an entry of ConceptMap.group.element. R5's noMap is converted to R4's target without a code.
func (g *MapGroup) readElement(r *fhirjson.Reader) error {
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
			return r.ArrayOf(smallPartSize, func() error { return e.readTarget(r) })
		}
		return r.Skip()
	},
		fhirjson.String{Name: "code", Destination: &e.Code}, fhirjson.String{Name: "display", Destination: &e.Display},
		fhirjson.String{Name: "comment", Destination: &e.Comment},
	)
	g.Elements = append(g.Elements, e)
	return err
}

func (e *MapElement) readTarget(r *fhirjson.Reader) error {
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
		fhirjson.String{Name: "code", Destination: &t.Code}, fhirjson.String{Name: "display", Destination: &t.Display},
		fhirjson.String{Name: "equivalence", Destination: &t.Equivalence}, fhirjson.String{Name: "relationship", Destination: &t.Equivalence},
		fhirjson.String{Name: "comment", Destination: &t.Comment},
	)
	e.Targets = append(e.Targets, t)
	return err
}

func appendMapAttribute(list *[]MapAttribute, r *fhirjson.Reader) error {
	var a MapAttribute
	err := r.Strings(
		fhirjson.String{Name: "property", Destination: &a.Property}, fhirjson.String{Name: "system", Destination: &a.System},
		fhirjson.String{Name: "value", Destination: &a.Value}, fhirjson.String{Name: "display", Destination: &a.Display},
	)
	*list = append(*list, a)
	return err
}

// MapTable indexes concept maps by canonical and ID.
type MapTable struct {
	Layers  [][]*ConceptMap // concept maps of each overlay, topmost first; the last element contains the loaded ones in loading order
	indexes layer[int]      // indexes of loaded concept maps by url|version
	byID    idTable[*ConceptMap]
}

// newOverlay returns an empty overlay of the table.
func (t *MapTable) newOverlay(competes bool) MapTable {
	return MapTable{Layers: append(make([][]*ConceptMap, 1), t.Layers...), byID: t.byID.newOverlay(competes)}
}

// ByID returns the concept map with the given ID.
func (t *MapTable) ByID(id string) (*ConceptMap, bool) { return t.byID.get(id) }

// addConceptMap adds a concept map. A loaded concept map replaces an earlier loaded one with the same URL and version.
func (t *MapTable) addConceptMap(m *ConceptMap) {
	list := &t.Layers[0]
	if len(t.Layers) == 1 && m.URL != "" {
		if i, ok := t.indexes.get(m.Canonical()); ok {
			t.byID.unregister((*list)[i])
			t.byID.register(m)
			(*list)[i] = m
			return
		}
		t.indexes.put(m.Canonical(), len(*list))
	}
	t.byID.register(m)
	*list = append(*list, m)
}

// ConceptMap returns the concept map with the given canonical. If several match, the last one loaded wins.
func (t *MapTable) ConceptMap(reference string) (*ConceptMap, bool) {
	for _, list := range t.Layers {
		for _, m := range slices.Backward(list) {
			if m.MatchesCanonical(reference) {
				return m, true
			}
		}
	}
	return nil, false
}

// Equivalences maps R5 relationship codes to R4 equivalence codes. The key "" is for a missing relationship.
var Equivalences = map[string]string{
	"": "relatedto", "related-to": "relatedto", "not-related-to": "disjoint",
	"source-is-narrower-than-target": "wider", "source-is-broader-than-target": "narrower",
}
