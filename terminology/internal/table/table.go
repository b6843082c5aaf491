package table

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// Table holds a code system's concepts in flat arrays, by number. The arrays hold no pointers, so that they cost the
// garbage collector nothing and large ones can lie off the heap.
type Table struct {
	concepts     concepts
	language     string // of the displays
	designations designations
	extensions   conceptExtensions

	parents, children relation
	properties        []codesystem.Property
	values            propertyValues

	weights []float64      // by concept: how much it is used; nil if that is unknown
	indexes *searchIndexes // filled on demand
}

// Len returns the number of concepts.
func (t *Table) Len() int { return t.concepts.len() }

// Locate finds a concept by its code.
func (t *Table) Locate(code []byte) (codesystem.Concept, bool) {
	concept, ok := t.concepts.locate(code)
	return codesystem.At(concept), ok
}

// Code returns a concept's code.
func (t *Table) Code(c codesystem.Concept) []byte { return t.concepts.codeOf(c.Number) }

// Concept returns a concept's code, display and flags.
func (t *Table) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return t.concepts.codeOf(c.Number), t.concepts.displayOf(c.Number), t.concepts.flags[c.Number]
}

// Definition returns a concept's definition, or nil.
func (t *Table) Definition(c codesystem.Concept) []byte { return t.concepts.definitionOf(c.Number) }

// AppendTexts appends the display and the designations of a concept.
func (t *Table) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	if display := t.concepts.displayOf(c.Number); len(display) > 0 {
		dst = append(dst, codesystem.Text{Language: t.language, Use: codesystem.PreferredForLanguage, Value: display, Display: true})
	}
	for row, end := t.designations.from.rows(c.Number); row < end; row++ {
		dst = append(dst, t.designations.text(row, t.concepts.texts))
	}
	return dst
}

// AppendExtensions appends the extensions of a concept.
func (t *Table) AppendExtensions(dst []codesystem.Extension, c codesystem.Concept) []codesystem.Extension {
	for row, end := t.extensions.rows(c.Number); row < end; row++ {
		dst = append(dst, codesystem.Extension{Kind: t.extensions.kind[row], Value: t.concepts.texts.At(t.extensions.value[row])})
	}
	return dst
}

// Properties returns the properties that concepts may have.
func (t *Table) Properties() []codesystem.Property { return t.properties }

// AppendValues appends the values of all properties of a concept.
func (t *Table) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	values := &t.values
	for row, end := values.from.rows(c.Number); row < end; row++ {
		v := codesystem.Value{
			Property: &t.properties[values.property[row]], Member: valueMembers[values.kind[row]], Text: t.concepts.texts.At(values.value[row]),
		}
		if values.kind[row] == valueCoding {
			v.Coding = t.concepts.texts.At(values.coding[row])
		}
		dst = append(dst, v)
	}
	return dst
}

// Values calls visit with the values of one property of a concept until visit returns false.
func (t *Table) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	for row, end := t.values.from.rows(c.Number); row < end; row++ {
		if int(t.values.property[row]) == property && !visit(t.concepts.texts.At(t.values.value[row])) {
			return
		}
	}
}

// Language returns the language of the displays; "" if it is unknown.
func (t *Table) Language() string { return t.language }

// languages returns the languages of the texts; the first is that of the displays.
func languages(t *Table) []string { return append([]string{t.language}, t.designations.languages...) }

// HasLanguage reports whether there are texts in a language, or one that is like it.
func (t *Table) HasLanguage(language string) bool {
	return codesystem.HasLanguage(languages(t), language)
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

// moveArrays moves the arrays of a table to memory off the heap, but for the texts.
func moveArrays(t *Table, m *offheap.Memory) {
	d, v := &t.designations, &t.values
	offheap.Move(m, &t.concepts.code, &t.concepts.display, &t.concepts.meaning, &d.value, &d.extension, &v.value, &v.coding)
	offheap.Move(m, (*[]uint32)(&t.concepts.index), &t.concepts.nestedIn, (*[]uint32)(&d.from), (*[]uint32)(&v.from))
	offheap.Move(m, (*[]uint32)(&t.parents.from), &t.parents.to, (*[]uint32)(&t.children.from), &t.children.to)
	offheap.Move(m, &d.language, &d.use, &v.property)
	offheap.Move(m, &t.concepts.flags)
	offheap.Move(m, &v.kind)
}

var (
	_ codesystem.System    = (*Table)(nil)
	_ codesystem.List      = (*Table)(nil)
	_ codesystem.Hierarchy = (*Table)(nil)
	_ codesystem.Filters   = (*Table)(nil)
	_ codesystem.Notes     = (*Table)(nil)
	_ codesystem.Dialects  = (*Table)(nil)
	_ codesystem.Search    = (*Table)(nil)
)
