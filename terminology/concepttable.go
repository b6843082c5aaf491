package terminology

import (
	"bytes"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
)

// conceptTable is a code system's concepts in flat arrays, by their numbers. No array holds a pointer, so that they cost
// the garbage collector nothing, and large ones lie beside the heap.
type conceptTable struct {
	caseSensitive bool
	language      string // of the displays

	texts    texts
	code     []textRef
	display  []textRef // 0 where a concept has none
	meaning  []textRef // concept.definition, 0 where a concept has none; nil where none has one
	flags    []conceptFlags
	index    codeIndex
	nestedIn []uint32 // the concept within which each stands in the definition, or none; nil where all are at the top

	languages    []string // of designations; 0 is none
	uses         []designationUse
	designations designations
	extensions   conceptExtensions

	parents, children relation
	properties        []property
	values            propertyValues

	indexes *searchIndexes // filled when they are needed
}

// Len returns the number of concepts.
func (t *conceptTable) Len() int { return len(t.code) }

// Concept returns a concept's code, display and flags.
func (t *conceptTable) Concept(concept uint32) (code, display []byte, flags conceptFlags) {
	return t.Code(concept), t.Display(concept), t.flags[concept]
}

// Code returns a concept's code.
func (t *conceptTable) Code(concept uint32) []byte { return t.texts.at(t.code[concept]) }

// Display returns a concept's display, or nil.
func (t *conceptTable) Display(concept uint32) []byte { return t.texts.at(t.display[concept]) }

// Definition returns a concept's definition, or nil.
func (t *conceptTable) Definition(concept uint32) []byte {
	if t.meaning == nil {
		return nil
	}
	return t.texts.at(t.meaning[concept])
}

// Flags returns what is known of a concept at a glance.
func (t *conceptTable) Flags(concept uint32) conceptFlags { return t.flags[concept] }

// Locate finds a concept by its code: as it is written, or, where case does not matter, in any case.
func (t *conceptTable) Locate(code []byte) (concept uint32, ok bool) {
	concept, ok = t.exact(code)
	if ok || t.caseSensitive {
		return concept, ok
	}
	return t.index.find(code, func(c uint32) bool { return equalFold(t.Code(c), code) })
}

// exact finds a concept by its code as it is written.
func (t *conceptTable) exact(code []byte) (uint32, bool) {
	return t.index.find(code, func(c uint32) bool { return bytes.Equal(t.Code(c), code) })
}

// AppendTexts appends the display and the designations of a concept.
func (t *conceptTable) AppendTexts(dst []shownText, concept uint32) []shownText {
	if display := t.Display(concept); len(display) > 0 {
		dst = append(dst, shownText{language: t.language, use: preferredForLanguage, value: display, display: true})
	}
	for row, end := t.designations.rows(concept); row < end; row++ {
		dst = append(dst, t.designation(row))
	}
	return dst
}

// designation returns the designation in a row.
func (t *conceptTable) designation(row uint32) shownText {
	d := &t.designations
	return shownText{
		language: t.languages[d.language[row]], use: t.uses[d.use[row]],
		value: t.texts.at(d.value[row]), extension: t.texts.at(d.extensionOf(row)),
	}
}

// AppendExtensions appends the extensions of a concept.
func (t *conceptTable) AppendExtensions(dst []conceptExtension, concept uint32) []conceptExtension {
	for row, end := t.extensions.rows(concept); row < end; row++ {
		dst = append(dst, conceptExtension{kind: t.extensions.kind[row], value: t.texts.at(t.extensions.value[row])})
	}
	return dst
}

// Properties returns the properties that concepts may have.
func (t *conceptTable) Properties() []property { return t.properties }

// AppendValues appends the values of all properties of a concept.
func (t *conceptTable) AppendValues(dst []conceptValue, concept uint32) []conceptValue {
	values := &t.values
	for row, end := values.rows(concept); row < end; row++ {
		v := conceptValue{property: &t.properties[values.property[row]], kind: values.kind[row], text: t.texts.at(values.value[row])}
		if v.kind == valueCoding {
			v.coding = t.texts.at(values.coding[row])
		}
		dst = append(dst, v)
	}
	return dst
}

// Values calls visit with the values of one property of a concept until visit returns false.
func (t *conceptTable) Values(concept uint32, property int, visit func(text []byte) bool) {
	for row, end := t.values.rows(concept); row < end; row++ {
		if int(t.values.property[row]) == property && !visit(t.texts.at(t.values.value[row])) {
			return
		}
	}
}

// Parents returns the concepts directly above one.
func (t *conceptTable) Parents(concept uint32) []uint32 { return t.parents.of(concept) }

// Children returns the concepts directly below one.
func (t *conceptTable) Children(concept uint32) []uint32 { return t.children.of(concept) }

// Above returns all concepts above one.
func (t *conceptTable) Above(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return t.parents.closure(t.Len(), concept, spend)
}

// Below returns all concepts below one.
func (t *conceptTable) Below(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return t.children.closure(t.Len(), concept, spend)
}

// settle moves the arrays into m.
func (t *conceptTable) settle(m *offheap.Memory) {
	d, v := &t.designations, &t.values
	offheap.Move(m, &t.code, &t.display, &t.meaning, &d.value, &d.extension, &v.value, &v.coding)
	offheap.Move(m, (*[]uint32)(&t.index), &t.nestedIn, &d.from, &v.from)
	offheap.Move(m, &t.parents.from, &t.parents.to, &t.children.from, &t.children.to)
	offheap.Move(m, &d.language, &d.use, &v.property)
	offheap.Move(m, &t.flags)
	offheap.Move(m, &v.kind)
}
