package snomed

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Properties of concepts (Using SNOMED CT with HL7 Standards, R4 §4.2.4). Attribute types and historical associations follow.
const (
	propertyInactive = iota
	propertyModule
	propertyEffectiveTime
	propertyDefined
	propertyNormalForm
	propertyNormalFormTerse
	fixedProperties
)

// Reference sets of association and attribute value type with the property names of their columns.
const (
	associationColumn = "targetComponentId"
	attributeColumn   = "valueId"
)

// roleGroup is the property that contains the attributes of a role group.
const roleGroup = "609096000"

// properties computes the values of the properties of concepts.
type properties struct {
	snapshot *snapshot
	list     []codesystem.Property
	refsets  [][]sctid // reference sets or identifier schemes of each property after the attribute types
}

// newProperties returns the fixed properties, attribute types, and reference sets of concepts that refer to another concept, such
// as historical associations and the reason for inactivation. Alternate identifiers have the property that SNOMED International's
// server uses, because HL7 does not define one.
func newProperties(s *snapshot) *properties {
	p := &properties{snapshot: s, list: []codesystem.Property{
		{Code: "inactive", URI: codesystem.PropertyBase + "inactive"}, {Code: "moduleId"}, {Code: "effectiveTime"},
		{Code: "sufficientlyDefined"}, {Code: "normalForm"}, {Code: "normalFormTerse"},
	}}
	for _, kind := range s.attributes.kinds {
		p.list = append(p.list, codesystem.Property{Code: string(s.code(kind)), GroupCode: roleGroup})
	}
	var schemes []sctid
	for _, id := range slices.Sorted(maps.Keys(s.refsets)) {
		switch x := s.refsets[id]; {
		case len(x.component) == 0:
		case x.isScheme():
			schemes = append(schemes, id)
		case x.columnIndex(associationColumn) == 0, x.columnIndex(attributeColumn) == 0:
			p.list, p.refsets = append(p.list, codesystem.Property{Code: strconv.FormatUint(uint64(id), 10)}), append(p.refsets, []sctid{id})
		}
	}
	if schemes != nil {
		p.list, p.refsets = append(p.list, codesystem.Property{Code: "equivalentConcept"}), append(p.refsets, schemes)
	}
	return p
}

// AppendConcepts appends nothing, because the concepts are too many for a resource. It replaces the method of the table.
func (s *System) AppendConcepts(dst []byte) []byte { return dst }

// AppendFormerTexts implements [codesystem.FormerTexts] with inactive descriptions.
func (s *System) AppendFormerTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	d := &s.snapshot.descriptions
	for row, end := d.rows(c.Number); row < end && c.Code == nil; row++ {
		if d.flags[row]&isInactive != 0 && d.flags[row]&typeMask != isDefinition {
			dst = append(dst, codesystem.Text{Language: d.languages[d.language[row]], Value: s.TextAt(d.term[row]), IsFormer: true})
		}
	}
	return dst
}

// Properties returns the properties of concepts.
func (s *System) Properties() []codesystem.Property { return s.properties.list }

// AppendValues appends the values of all properties of a concept.
func (s *System) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	if c.Code != nil {
		return dst
	}
	p := s.properties
	for property := range fixedProperties {
		dst = p.appendValues(dst, c.Number, property)
	}
	dst = p.appendAttributes(dst, c.Number, none)
	for i := range p.refsets {
		dst = p.appendMembers(dst, c.Number, i)
	}
	return dst
}

// Values calls visit with the values of a property of a concept until visit returns false.
func (s *System) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	if c.Code != nil {
		return
	}
	for _, v := range s.properties.appendValues(nil, c.Number, property) {
		if !visit(v.Text) {
			return
		}
	}
}

// appendValues appends the values of a property of a concept.
func (p *properties) appendValues(dst []codesystem.Value, concept uint32, property int) []codesystem.Value {
	kinds := p.snapshot.attributes.kinds
	switch index := property - fixedProperties; {
	case index >= len(kinds):
		return p.appendMembers(dst, concept, index-len(kinds))
	case index >= 0:
		return p.appendAttributes(dst, concept, kinds[index])
	}
	v := codesystem.Value{Property: &p.list[property], Member: "valueBoolean"}
	switch property {
	case propertyInactive:
		v.Text = strconv.AppendBool(nil, !p.snapshot.active.Has(concept))
	case propertyModule:
		v.Member, v.Text = "valueCode", strconv.AppendUint(nil, p.snapshot.modules[p.snapshot.module[concept]], 10)
	case propertyEffectiveTime:
		v.Member, v.Text = "valueString", []byte(p.snapshot.effective[concept].String())
	case propertyDefined:
		v.Text = strconv.AppendBool(nil, p.snapshot.defined.Has(concept))
	case propertyNormalForm, propertyNormalFormTerse:
		if !p.snapshot.active.Has(concept) {
			return dst
		}
		v.Member, v.Text = "valueString", p.normalForm(concept, property == propertyNormalForm)
	}
	return append(dst, v)
}

// appendAttributes appends the values of an attribute type, or of all types if kind is none.
func (p *properties) appendAttributes(dst []codesystem.Value, concept, kind uint32) []codesystem.Value {
	a := &p.snapshot.attributes
	for row, end := a.rowsOf(concept); row < end; row++ {
		if kind == none || a.rows.Type[row] == kind {
			dst = append(dst, codesystem.Value{Property: p.kindProperty(a.rows.Type[row]), Member: "valueCode", Text: p.snapshot.code(a.rows.Destination[row]), Group: a.rows.Group[row]})
		}
	}
	for row, end := a.concreteRowsOf(concept); row < end; row++ {
		if kind == none || a.concreteKind[row] == kind {
			dst = append(dst, p.concreteValue(row))
		}
	}
	return dst
}

// kindProperty returns the property of an attribute type.
func (p *properties) kindProperty(kind uint32) *codesystem.Property {
	i, _ := slices.BinarySearch(p.snapshot.attributes.kinds, kind)
	return &p.list[fixedProperties+i]
}

func (p *properties) concreteValue(row int) codesystem.Value {
	a := &p.snapshot.attributes
	text := a.texts.At(a.concreteValue[row])
	v := codesystem.Value{Property: p.kindProperty(a.concreteKind[row]), Member: "valueDecimal", Text: text[1:], Group: a.concreteGroup[row]}
	if text[0] == '"' {
		v.Member, v.Text = "valueString", bytes.TrimSuffix(text[1:], []byte{'"'})
	}
	return v
}

// appendMembers appends the targets of a concept in an association reference set, or its identifiers in all schemes.
func (p *properties) appendMembers(dst []codesystem.Value, concept uint32, index int) []codesystem.Value {
	for _, id := range p.refsets[index] {
		x := p.snapshot.refsets[id]
		for row, end := x.rowsOf(concept); row < end; row++ {
			if !x.active[row] {
				continue
			}
			v := codesystem.Value{Property: &p.list[fixedProperties+len(p.snapshot.attributes.kinds)+index], Member: "valueCode", Text: p.snapshot.cellText(x.row(row)[0], 'c')}
			if x.isScheme() {
				v.Member, v.Coding = "valueCoding", append(fhirjson.AppendMember(fhirjson.AppendMember(nil, "system", mapSystems[id]), "code", v.Text), '}')
				v.Coding[0] = '{' // replaces the leading comma
			}
			dst = append(dst, v)
		}
	}
	return dst
}

// normalForm returns the definition of a concept as an expression of its proximal primitive supertypes and its attributes, with
// or without terms. Single attributes come first. Attributes are sorted, so that equal definitions have equal texts.
func (p *properties) normalForm(concept uint32, terms bool) []byte {
	e := &expression{prefix: "<<< ", focus: p.proximalPrimitives(concept), groups: p.snapshot.groupsOf(concept)}
	if p.snapshot.defined.Has(concept) {
		e.prefix = "=== "
	}
	compare := func(a, b attributeGroup) int {
		return bytes.Compare(p.snapshot.appendGroup(nil, a, terms), p.snapshot.appendGroup(nil, b, terms))
	}
	for _, g := range e.groups {
		slices.SortFunc(g.attributes, func(a, b attributeValue) int {
			return compare(attributeGroup{attributes: []attributeValue{a}}, attributeGroup{attributes: []attributeValue{b}})
		})
	}
	slices.SortFunc(e.groups, compare)
	return p.snapshot.appendExpression(nil, e, terms)
}

// proximalPrimitives returns the most specific primitive supertypes of a concept.
func (p *properties) proximalPrimitives(concept uint32) []uint32 {
	var found, above []uint32
	p.snapshot.climb(p.snapshot.table.Parents(concept), func(next uint32) bool {
		if p.snapshot.defined.Has(next) {
			return true
		}
		found, above = append(found, next), append(above, p.snapshot.table.Parents(next)...)
		return false
	})
	general := make(map[uint32]bool)
	p.snapshot.climb(above, func(next uint32) bool {
		general[next] = true
		return true
	})
	found = slices.DeleteFunc(found, func(concept uint32) bool { return general[concept] })
	slices.Sort(found)
	return found
}
