package codesystem

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
)

// Table holds a code system's concepts in flat arrays, by number. The arrays hold no pointers, so that they cost the
// garbage collector nothing and large ones can lie off the heap.
type Table struct {
	concepts
	language     string // of the displays
	designations designations
	extensions   conceptExtensions

	parents, children relation
	properties        []Property
	values            propertyValues

	weights []float64      // by concept: how much it is used; nil if that is unknown
	indexes *searchIndexes // filled on demand
}

// AppendTexts appends the display and the designations of a concept.
func (t *Table) AppendTexts(dst []Text, concept uint32) []Text {
	if display := t.Display(concept); len(display) > 0 {
		dst = append(dst, Text{Language: t.language, Use: PreferredForLanguage, Value: display, Display: true})
	}
	for row, end := t.designations.rows(concept); row < end; row++ {
		dst = append(dst, t.designation(row))
	}
	return dst
}

func (t *Table) designation(row uint32) Text {
	d := &t.designations
	text := Text{Language: d.languages[d.language[row]], Use: d.uses[d.use[row]], Value: t.texts.At(d.value[row])}
	if d.extension != nil {
		text.Extension = t.texts.At(d.extension[row])
	}
	return text
}

// AppendExtensions appends the extensions of a concept.
func (t *Table) AppendExtensions(dst []Extension, concept uint32) []Extension {
	for row, end := t.extensions.rows(concept); row < end; row++ {
		dst = append(dst, Extension{Kind: t.extensions.kind[row], Value: t.texts.At(t.extensions.value[row])})
	}
	return dst
}

// Properties returns the properties that concepts may have.
func (t *Table) Properties() []Property { return t.properties }

// AppendValues appends the values of all properties of a concept.
func (t *Table) AppendValues(dst []Value, concept uint32) []Value {
	values := &t.values
	for row, end := values.rows(concept); row < end; row++ {
		v := Value{Property: &t.properties[values.property[row]], kind: values.kind[row], Text: t.texts.At(values.value[row])}
		if v.kind == valueCoding {
			v.Coding = t.texts.At(values.coding[row])
		}
		dst = append(dst, v)
	}
	return dst
}

// Values calls visit with the values of one property of a concept until visit returns false.
func (t *Table) Values(concept uint32, property int, visit func(text []byte) bool) {
	for row, end := t.values.rows(concept); row < end; row++ {
		if int(t.values.property[row]) == property && !visit(t.texts.At(t.values.value[row])) {
			return
		}
	}
}

// Parents returns the concepts directly above one.
func (t *Table) Parents(concept uint32) []uint32 { return t.parents.related(concept) }

// Children returns the concepts directly below one.
func (t *Table) Children(concept uint32) []uint32 { return t.children.related(concept) }

// Above returns all ancestors of a concept.
func (t *Table) Above(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return t.parents.closure(t.Len(), concept, spend)
}

// Below returns all descendants of a concept.
func (t *Table) Below(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return t.children.closure(t.Len(), concept, spend)
}

func (t *Table) settle(m *offheap.Memory) {
	d, v := &t.designations, &t.values
	offheap.Move(m, &t.code, &t.display, &t.meaning, &d.value, &d.extension, &v.value, &v.coding)
	offheap.Move(m, (*[]uint32)(&t.index), &t.nestedIn, (*[]uint32)(&d.offsets), (*[]uint32)(&v.offsets))
	offheap.Move(m, (*[]uint32)(&t.parents.offsets), &t.parents.to, (*[]uint32)(&t.children.offsets), &t.children.to)
	offheap.Move(m, &d.language, &d.use, &v.property)
	offheap.Move(m, &t.flags)
	offheap.Move(m, &v.kind)
}
