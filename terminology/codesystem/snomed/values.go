package snomed

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
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

// declareProperties sets the properties: the fixed ones, attribute types, and reference sets of concepts that refer to another
// concept, such as historical associations and the reason for inactivation.
func (s *System) declareProperties() {
	s.properties = []codesystem.Property{
		{Code: "inactive", URI: codesystem.PropertyBase + "inactive"}, {Code: "moduleId"}, {Code: "effectiveTime"},
		{Code: "sufficientlyDefined"}, {Code: "normalForm"}, {Code: "normalFormTerse"},
	}
	for _, kind := range s.attributes.kinds {
		s.properties = append(s.properties, codesystem.Property{Code: string(s.code(kind))})
	}
	for id, x := range s.refsets {
		if len(x.component) > 0 && (x.columnIndex(associationColumn) == 0 || x.columnIndex(attributeColumn) == 0) {
			s.associations = append(s.associations, id)
		}
	}
	slices.Sort(s.associations)
	for _, id := range s.associations {
		s.properties = append(s.properties, codesystem.Property{Code: strconv.FormatUint(uint64(id), 10)})
	}
}

// AppendConcepts appends nothing, because the concepts are too many for a resource. It replaces the method of the table.
func (s *System) AppendConcepts(dst []byte) []byte { return dst }

// AppendFormerTexts implements [codesystem.FormerTexts] with inactive descriptions.
func (s *System) AppendFormerTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	d := &s.descriptions
	for row, end := d.rows(c.Number); row < end && c.Code == nil; row++ {
		if d.flags[row]&isInactive != 0 && d.flags[row]&typeMask != isDefinition {
			dst = append(dst, codesystem.Text{Language: d.languages[d.language[row]], Value: s.TextAt(d.term[row]), IsFormer: true})
		}
	}
	return dst
}

// Properties returns the properties of concepts.
func (s *System) Properties() []codesystem.Property { return s.properties }

// AppendValues appends the values of all properties of a concept.
func (s *System) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	if c.Code != nil {
		return dst
	}
	for property := range fixedProperties {
		dst = s.appendValues(dst, c.Number, property)
	}
	a := &s.attributes
	for row, end := a.rowsOf(c.Number); row < end; row++ {
		dst = append(dst, s.attributeValue(row))
	}
	for row, end := a.concreteRowsOf(c.Number); row < end; row++ {
		dst = append(dst, s.concreteValue(row))
	}
	for i := range s.associations {
		dst = s.appendAssociations(dst, c.Number, i)
	}
	return dst
}

// Values calls visit with the values of a property of a concept until visit returns false.
func (s *System) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	if c.Code != nil {
		return
	}
	for _, v := range s.appendValues(nil, c.Number, property) {
		if !visit(v.Text) {
			return
		}
	}
}

// appendValues appends the values of a property of a concept.
func (s *System) appendValues(dst []codesystem.Value, concept uint32, property int) []codesystem.Value {
	if property >= fixedProperties {
		return s.appendOtherValues(dst, concept, property-fixedProperties)
	}
	v := codesystem.Value{Property: &s.properties[property], Member: "valueBoolean"}
	switch property {
	case propertyInactive:
		v.Text = strconv.AppendBool(nil, !s.active.Has(concept))
	case propertyModule:
		v.Member, v.Text = "valueCode", strconv.AppendUint(nil, s.modules[s.module[concept]], 10)
	case propertyEffectiveTime:
		v.Member, v.Text = "valueString", []byte(s.effective[concept].String())
	case propertyDefined:
		v.Text = strconv.AppendBool(nil, s.defined.Has(concept))
	case propertyNormalForm, propertyNormalFormTerse:
		if !s.active.Has(concept) {
			return dst
		}
		v.Member, v.Text = "valueString", s.normalForm(concept, property == propertyNormalForm)
	}
	return append(dst, v)
}

// appendOtherValues appends the values of an attribute type or association.
func (s *System) appendOtherValues(dst []codesystem.Value, concept uint32, index int) []codesystem.Value {
	a := &s.attributes
	if index >= len(a.kinds) {
		return s.appendAssociations(dst, concept, index-len(a.kinds))
	}
	kind := a.kinds[index]
	for row, end := a.rowsOf(concept); row < end; row++ {
		if a.kind[row] == kind {
			dst = append(dst, s.attributeValue(row))
		}
	}
	for row, end := a.concreteRowsOf(concept); row < end; row++ {
		if a.concreteKind[row] == kind {
			dst = append(dst, s.concreteValue(row))
		}
	}
	return dst
}

// kindProperty returns the property of an attribute type.
func (s *System) kindProperty(kind uint32) *codesystem.Property {
	i, _ := slices.BinarySearch(s.attributes.kinds, kind)
	return &s.properties[fixedProperties+i]
}

func (s *System) attributeValue(row uint32) codesystem.Value {
	a := &s.attributes
	return codesystem.Value{Property: s.kindProperty(a.kind[row]), Member: "valueCode", Text: s.code(a.destination[row])}
}

func (s *System) concreteValue(row int) codesystem.Value {
	a := &s.attributes
	text := a.texts.At(a.concreteValue[row])
	v := codesystem.Value{Property: s.kindProperty(a.concreteKind[row]), Member: "valueDecimal", Text: text[1:]}
	if text[0] == '"' {
		v.Member, v.Text = "valueString", bytes.TrimSuffix(text[1:], []byte{'"'})
	}
	return v
}

// appendAssociations appends the targets of a concept in an association reference set.
func (s *System) appendAssociations(dst []codesystem.Value, concept uint32, index int) []codesystem.Value {
	x := s.refsets[s.associations[index]]
	property := &s.properties[fixedProperties+len(s.attributes.kinds)+index]
	for row, end := x.rowsOf(concept); row < end; row++ {
		if x.active[row] {
			dst = append(dst, codesystem.Value{Property: property, Member: "valueCode", Text: s.cellText(x.row(row)[0], 'c')})
		}
	}
	return dst
}

// cellText returns a cell of a reference set as text.
func (s *System) cellText(cell uint32, kind byte) []byte {
	switch {
	case cell&textCell != 0:
		return s.refsetTexts.At(codesystem.TextRef(cell &^ textCell))
	case kind == 'i':
		return strconv.AppendUint(nil, uint64(cell), 10)
	}
	return s.code(cell)
}

// normalForm returns the definition of a concept as an expression of its proximal primitive supertypes and its attributes, with
// or without terms.
func (s *System) normalForm(concept uint32, terms bool) []byte {
	status := []byte("<<< ")
	if s.defined.Has(concept) {
		status = []byte("=== ")
	}
	return s.appendDefinition(status, concept, func(dst []byte, concept uint32) []byte {
		if dst = append(dst, s.code(concept)...); terms {
			dst = append(append(append(dst, '|'), s.term(concept)...), '|')
		}
		return dst
	})
}

// appendDefinition appends the proximal primitive supertypes of a concept and its attributes. reference appends a concept.
func (s *System) appendDefinition(dst []byte, concept uint32, reference func(dst []byte, concept uint32) []byte) []byte {
	for i, focus := range s.proximalPrimitives(concept) {
		if i > 0 {
			dst = append(dst, '+')
		}
		dst = reference(dst, focus)
	}
	var ungrouped [][]byte
	groups := make(map[uint16][][]byte)
	add := func(group uint16, attribute []byte) {
		if group == 0 {
			ungrouped = append(ungrouped, attribute)
		} else {
			groups[group] = append(groups[group], attribute)
		}
	}
	a := &s.attributes
	for row, end := a.rowsOf(concept); row < end; row++ {
		add(a.group[row], reference(append(reference(nil, a.kind[row]), '='), a.destination[row]))
	}
	for row, end := a.concreteRowsOf(concept); row < end; row++ {
		add(a.concreteGroup[row], append(append(reference(nil, a.concreteKind[row]), '='), a.texts.At(a.concreteValue[row])...))
	}
	return appendRefinement(dst, ungrouped, groups)
}

// appendRefinement appends attributes to an expression. They are sorted, so that equal definitions have equal texts.
func appendRefinement(dst []byte, ungrouped [][]byte, groups map[uint16][][]byte) []byte {
	var parts []string
	join := func(attributes [][]byte) string {
		slices.SortFunc(attributes, bytes.Compare)
		return string(bytes.Join(attributes, []byte{','}))
	}
	for _, group := range groups {
		parts = append(parts, "{"+join(group)+"}")
	}
	slices.Sort(parts)
	if len(ungrouped) > 0 {
		parts = append([]string{join(ungrouped)}, parts...)
	}
	if len(parts) > 0 {
		dst = append(dst, ':')
	}
	return append(dst, strings.Join(parts, ",")...)
}

// proximalPrimitives returns the primitive supertypes of a concept that have no other of them as a descendant.
func (s *System) proximalPrimitives(concept uint32) []uint32 {
	var found, above []uint32
	s.climb(s.Parents(concept), func(next uint32) (goOn bool) {
		if s.defined.Has(next) {
			return true
		}
		found, above = append(found, next), append(above, s.Parents(next)...)
		return false
	})
	general := make(map[uint32]bool)
	s.climb(above, func(next uint32) bool {
		general[next] = true
		return true
	})
	found = slices.DeleteFunc(found, func(concept uint32) bool { return general[concept] })
	slices.Sort(found)
	return found
}

// climb calls visit once with each of the concepts and with the parents of those for which it returns true. Unlike
// [table.Table.Above], it needs no set of all concepts.
func (s *System) climb(concepts []uint32, visit func(concept uint32) bool) {
	pending, seen := slices.Clone(concepts), make(map[uint32]bool)
	for len(pending) > 0 {
		next := pending[len(pending)-1]
		if pending = pending[:len(pending)-1]; !seen[next] {
			if seen[next] = true; visit(next) {
				pending = append(pending, s.Parents(next)...)
			}
		}
	}
}
