package table

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// Builder reads the concepts of a code system from JSON. It is reused for several code systems, so that its arrays grow
// only once; Build copies them to arrays of the exact size.
type Builder struct {
	read   source
	nested uint32 // parent of the next nested concept

	// Size is the size of the source in bytes; 0 for a short-lived table.
	Size int64

	// Memory contains the texts, if large, until Build takes them.
	Memory offheap.Memory

	// Modifiers reads the modifier extensions of a concept.
	Modifiers func(r *fhirjson.Reader) error
}

// largeText is the size of texts in bytes from which on a code system is stored off the heap. Its memory is reserved at
// once by an estimate.
const largeText = 4 << 20

// reserve reserves memory for the rest of a large code system, extrapolated from the read part of the source. Unused
// memory is never touched and so never resident.
func (b *Builder) reserve(r *fhirjson.Reader) {
	c := &b.read.concepts
	if len(c.texts) < largeText || cap(c.texts)-len(c.texts) > 1<<16 || b.Size == 0 {
		return
	}
	read := r.Offset()
	factor := min(float64(b.Size)/float64(max(1, read)), 1000) * 1.02
	c.texts = b.Memory.Grow(c.texts, room(len(c.texts), factor))
	c.code, c.display = reserved(c.code, factor), reserved(c.display, factor)
	c.meaning, c.nestedIn = reserved(c.meaning, factor), reserved(c.nestedIn, factor)
	b.read.reader.Designations = reserved(b.read.reader.Designations, factor)
	b.read.properties.rows, b.read.pairs = reserved(b.read.properties.rows, factor), reserved(b.read.pairs, factor)
}

// settle moves a large code system off the heap and frees temporary memory before the next one is read. Collecting is
// cheap because there are no pointers to follow.
func (b *Builder) settle(t *Table) {
	m, texts := new(offheap.Memory), b.read.concepts.texts
	t.concepts.texts = slices.Clip(texts)
	if b.Memory.Holds(texts) {
		*m, b.Memory = b.Memory, offheap.Memory{}
	} else {
		offheap.Move(m, (*[]byte)(&t.concepts.texts))
		b.Memory.Release()
	}
	moveArrays(t, m)
	offheap.ReleaseWith(t, m)
	b.read = source{}
	debug.FreeOSMemory()
}

// reserved returns a list with capacity for factor times its length.
func reserved[S ~[]T, T any](list S, factor float64) S {
	return slices.Grow(list, room(len(list), factor))
}

// room returns the additional capacity for n elements and a growth factor.
func room(n int, factor float64) int { return max(1<<17, int(float64(n)*(factor-1))) }

// Reset prepares the builder for the next code system.
func (b *Builder) Reset() {
	b.read.reset()
	b.nested = noParent
}

// PropertyDefinition reads an entry of CodeSystem.property.
func (b *Builder) PropertyDefinition(r *fhirjson.Reader) error { return b.read.properties.define(r) }

// Concept reads an entry of CodeSystem.concept with its nested concepts.
func (b *Builder) Concept(r *fhirjson.Reader) error {
	b.reserve(r)
	c := &b.read.concepts
	concept, parent := uint32(c.len()), b.nested
	c.code = append(c.code, 0)
	c.display = append(c.display, 0)
	c.meaning = append(c.meaning, 0)
	c.nestedIn = append(c.nestedIn, parent)
	if parent != noParent {
		b.read.pairs = append(b.read.pairs, pair{from: parent, to: concept})
	}
	b.nested = concept
	err := r.Object(func(name []byte) error { return b.conceptMember(r, concept, string(name)) })
	b.nested = parent
	if err == nil && len(c.codeOf(concept)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	return err
}

func (b *Builder) conceptMember(r *fhirjson.Reader, concept uint32, name string) error {
	c, reader := &b.read.concepts, &b.read.reader
	switch name {
	case "code":
		return c.texts.Read(r, &c.code[concept])
	case "display":
		return c.texts.Read(r, &c.display[concept])
	case "definition":
		return c.texts.Read(r, &c.meaning[concept])
	case "designation":
		return r.Array(func() error { return reader.Designation(r, &c.texts, concept) })
	case "extension":
		return reader.Extension(r, &c.texts, concept)
	case "modifierExtension":
		return b.Modifiers(r)
	case "property":
		return r.Array(func() error { return b.read.properties.read(r, &c.texts, concept) })
	case "concept":
		return r.Array(func() error { return b.Concept(r) })
	default:
		return r.Skip()
	}
}

// Build returns the table of the concepts. language is the language of their displays.
func (b *Builder) Build(language string, caseSensitive bool) (*Table, error) {
	read := &b.read
	read.indexCodes()
	if uint64(len(read.concepts.texts)) > math.MaxUint32 {
		return nil, errors.New("more than 4 GiB of text")
	}
	read.relate()
	read.flag()
	n := read.concepts.len()
	t := &Table{
		concepts: read.concepts, language: language, indexes: new(searchIndexes),
		designations: newDesignations(n, &read.reader), extensions: newConceptExtensions(read.reader.Extensions),
		children: newRelation(n, read.pairs), parents: newRelation(n, inverse(read.pairs)),
		properties: read.properties.list, values: read.properties.sorted(n),
	}
	c := &t.concepts
	c.caseSensitive = caseSensitive
	c.code, c.display, c.flags = slices.Clone(c.code), slices.Clone(c.display), slices.Clone(c.flags)
	c.meaning, c.nestedIn = cloneUsed(c.meaning, 0), cloneUsed(c.nestedIn, noParent)
	if len(c.texts) >= largeText && b.Size > 0 { // a code system of a request is short-lived
		b.settle(t)
	} else {
		c.texts = slices.Clone(c.texts)
	}
	return t, nil
}

// cloneUsed copies a list, or returns nil if all items equal unused.
func cloneUsed[T ~uint32](list []T, unused T) []T {
	if !slices.ContainsFunc(list, func(v T) bool { return v != unused }) {
		return nil
	}
	return slices.Clone(list)
}

// source contains the unsorted content of a code system.
type source struct {
	concepts   concepts
	reader     codesystem.ConceptReader
	properties propertyRows
	pairs      []pair // parent and child
}

// reset clears the source but keeps its memory. Slices that a table shares are allocated again.
func (s *source) reset() {
	c := &s.concepts
	s.concepts = concepts{
		texts: c.texts[:0], code: c.code[:0], display: c.display[:0], meaning: c.meaning[:0], nestedIn: c.nestedIn[:0], flags: c.flags[:0],
	}
	s.reader.Reset()
	s.properties = propertyRows{rows: s.properties.rows[:0]}
	s.pairs = s.pairs[:0]
}

// indexCodes builds the index of codes. Some code systems repeat a concept under each of its parents: repetitions are
// dropped, and their data is assigned to the first occurrence.
func (s *source) indexCodes() {
	s.concepts.index = newCodeIndex(s.concepts.len())
	first := []uint32(nil) // first occurrence of each concept, allocated when one is dropped
	kept := uint32(0)
	for concept := range uint32(s.concepts.len()) {
		code := s.concepts.codeOf(concept)
		if same, found := s.concepts.exact(code); found {
			if first == nil {
				first = identity(s.concepts.len())
			}
			first[concept] = same
			continue
		}
		s.concepts.code[kept], s.concepts.display[kept] = s.concepts.code[concept], s.concepts.display[concept]
		s.concepts.meaning[kept], s.concepts.nestedIn[kept] = s.concepts.meaning[concept], s.concepts.nestedIn[concept]
		s.concepts.index.insert(code, kept)
		if first != nil {
			first[concept] = kept
		}
		kept++
	}
	s.concepts.code, s.concepts.display = s.concepts.code[:kept], s.concepts.display[:kept]
	s.concepts.meaning, s.concepts.nestedIn = s.concepts.meaning[:kept], s.concepts.nestedIn[:kept]
	if first != nil {
		s.rename(first)
	}
}

func identity(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// rename replaces concept numbers in all data.
func (s *source) rename(to []uint32) {
	for i, p := range s.pairs {
		s.pairs[i] = pair{from: to[p.from], to: to[p.to]}
	}
	for i := range s.properties.rows {
		s.properties.rows[i].concept = to[s.properties.rows[i].concept]
	}
	for i := range s.reader.Designations {
		row := &s.reader.Designations[i]
		row.Owner = to[row.Owner]
	}
	for i := range s.reader.Extensions {
		row := &s.reader.Extensions[i]
		row.Owner = to[row.Owner]
	}
	for i, parent := range s.concepts.nestedIn {
		if parent != noParent {
			s.concepts.nestedIn[i] = to[parent]
		}
	}
}

// relate adds pairs for the properties parent and child. It ignores values that are not concepts of the code system.
func (s *source) relate() {
	for i, p := range s.properties.list {
		isParent, isChild := p.Is("parent"), p.Is("child")
		if !isParent && !isChild {
			continue
		}
		for _, row := range s.properties.rows {
			if int(row.property) != i {
				continue
			}
			other, ok := s.concepts.exact(s.concepts.texts.At(row.value))
			if ok && isParent {
				s.pairs = append(s.pairs, pair{from: other, to: row.concept})
			} else if ok {
				s.pairs = append(s.pairs, pair{from: row.concept, to: other})
			}
		}
	}
}

func (s *source) flag() {
	s.concepts.flags = slices.Grow(s.concepts.flags, s.concepts.len())[:s.concepts.len()]
	clear(s.concepts.flags)
	for _, row := range s.properties.rows {
		s.concepts.flags[row.concept] |= flagsOf(s.properties.list[row.property], string(s.concepts.texts.At(row.value)))
	}
	for _, d := range s.reader.Designations {
		s.concepts.flags[d.Owner] |= codesystem.FlagDesignated
	}
	for _, x := range s.reader.Extensions {
		s.concepts.flags[x.Owner] |= codesystem.FlagExtended
		if x.Kind == codesystem.ExtensionStandardsStatus {
			s.concepts.flags[x.Owner] |= codesystem.FlagStatus
			if bytes.Contains(s.concepts.texts.At(x.Value), []byte(`"withdrawn"`)) {
				s.concepts.flags[x.Owner] |= codesystem.FlagInactive
			}
		}
	}
}

// flagsOf returns the flags that a property value sets.
func flagsOf(p codesystem.Property, value string) (flags codesystem.Flags) {
	switch {
	case p.Is("notSelectable") && value == "true":
		return codesystem.FlagAbstract
	case p.Is("user-assigned") && value == "true":
		return codesystem.FlagUserAssigned
	case p.Is("inactive") && value == "true":
		return codesystem.FlagInactive | codesystem.FlagStatus
	case p.Is("status") && (value == "retired" || value == "inactive"):
		return codesystem.FlagInactive | codesystem.FlagStatus
	case p.Is("status") && !strings.EqualFold(value, "active") && value != "":
		return codesystem.FlagStatus
	case p.Is("deprecated") && value != "false" && value != "", p.Is("deprecationDate") && value != "":
		return codesystem.FlagDeprecated | codesystem.FlagStatus
	}
	return 0
}

// propertyRow is a property value of a concept.
type propertyRow struct {
	concept  uint32
	property uint16
	kind     valueKind
	value    codesystem.TextRef
	coding   codesystem.TextRef
}

// propertyRows contains the properties of a code system, and their values in source order.
type propertyRows struct {
	list []codesystem.Property
	rows []propertyRow
}

// define reads an entry of CodeSystem.property.
func (p *propertyRows) define(r *fhirjson.Reader) error {
	var property codesystem.Property
	err := r.Strings(fhirjson.String{Name: "code", Into: &property.Code}, fhirjson.String{Name: "uri", Into: &property.URI})
	if err != nil {
		return err
	}
	if known := slices.IndexFunc(p.list, func(k codesystem.Property) bool { return k.Code == property.Code }); known >= 0 {
		p.list[known] = property
		return nil
	}
	return p.add(property)
}

func (p *propertyRows) add(property codesystem.Property) error {
	if len(p.list) == math.MaxUint16 {
		return fmt.Errorf("more than %d properties", math.MaxUint16)
	}
	p.list = append(p.list, property)
	return nil
}

// read reads an entry of concept.property and appends its texts to t.
func (p *propertyRows) read(r *fhirjson.Reader, t *codesystem.Texts, concept uint32) error {
	row, coded := propertyRow{concept: concept}, false
	err := r.Object(func(name []byte) error {
		switch {
		case string(name) == "code":
			coded = true
			return p.code(r, &row.property)
		case string(name) == "valueCoding":
			row.kind = valueCoding
			return row.readCoding(r, t)
		case bytes.HasPrefix(name, []byte("value")):
			row.kind = valueKind(max(0, slices.Index(valueMembers[:], string(name))))
			s, err := r.Primitive()
			row.value = p.text(t, s)
			return err
		default:
			return r.Skip()
		}
	})
	if err == nil && !coded {
		err = fmt.Errorf("%s: property without a code", r.Pointer())
	}
	if row.value != 0 {
		p.rows = append(p.rows, row)
	}
	return err
}

// text appends a property value unless it equals the previous one: siblings share a parent, and most concepts a status.
func (p *propertyRows) text(t *codesystem.Texts, value []byte) codesystem.TextRef {
	if last := len(p.rows) - 1; last >= 0 && bytes.Equal(t.At(p.rows[last].value), value) {
		return p.rows[last].value
	}
	return t.Append(value)
}

// code reads a property code and returns its index, adding the property if necessary.
func (p *propertyRows) code(r *fhirjson.Reader, index *uint16) error {
	code, err := r.Text()
	if err != nil {
		return err
	}
	for i := range p.list {
		if p.list[i].Code == string(code) {
			*index = uint16(i)
			return nil
		}
	}
	*index = uint16(len(p.list))
	return p.add(codesystem.Property{Code: string(code)})
}

// readCoding reads a valueCoding: the code for filters, and the entire Coding for responses.
func (row *propertyRow) readCoding(r *fhirjson.Reader, t *codesystem.Texts) error {
	whole, err := r.CompactValue('{')
	if err != nil {
		return err
	}
	row.coding = t.Append(whole)
	inner := fhirjson.ReaderOf(whole)
	return inner.Object(func(name []byte) error {
		if string(name) == "code" {
			return t.Read(inner, &row.value)
		}
		return inner.Skip()
	})
}

// sorted returns the property values in concept order.
func (p *propertyRows) sorted(n int) propertyValues {
	if len(p.rows) == 0 {
		return propertyValues{}
	}
	from, order := sortByOwner(n, len(p.rows), func(i int) (uint32, uint32) { return p.rows[i].concept, uint32(i) })
	values := propertyValues{from: from, property: make([]uint16, len(order)), kind: make([]valueKind, len(order)), value: make([]codesystem.TextRef, len(order))}
	for i, row := range order {
		r := p.rows[row]
		values.property[i], values.kind[i], values.value[i] = r.property, r.kind, r.value
		if r.coding != 0 {
			if values.coding == nil {
				values.coding = make([]codesystem.TextRef, len(order))
			}
			values.coding[i] = r.coding
		}
	}
	return values
}
