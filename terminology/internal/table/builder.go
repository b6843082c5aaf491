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

// Builder builds the table of a code system. It reads the concepts from JSON, or its Add methods receive them. It can be reused for
// several code systems, so that its arrays are grown only once. Build copies their content to arrays of the exact size.
type Builder struct {
	source source
	parent uint32 // parent of the next concept that is read; noParent at the top level

	// Size is the size of the source in bytes, or 0 if the table is short-lived.
	Size int64

	// Memory contains the texts of a large code system until Build moves them to the table.
	Memory offheap.Memory

	// Modifiers reads the modifier extensions of a concept.
	Modifiers func(r *fhirjson.Reader) error

	// SearchesOwnLanguage restricts searches without requested languages to texts in the language of the displays. An index of
	// texts in many languages would need much time and memory.
	SearchesOwnLanguage bool
}

// largeTextSize is the minimum size in bytes of the texts of a code system that is stored off the heap. Its memory is reserved
// at once, based on an estimate.
const largeTextSize = 4 << 20

// reserve reserves memory for the rest of a large code system. The size is extrapolated from the part that has been read.
// Unused pages are never touched and so don't use memory.
func (b *Builder) reserve(r *fhirjson.Reader) {
	c := &b.source.concepts
	if len(c.texts) < largeTextSize || cap(c.texts)-len(c.texts) > 1<<16 || b.Size == 0 {
		return
	}
	read := r.Offset()
	factor := min(float64(b.Size)/float64(max(1, read)), 1000) * 1.02
	c.texts = b.Memory.Grow(c.texts, extraCapacity(len(c.texts), factor))
	c.code, c.display = withCapacity(c.code, factor), withCapacity(c.display, factor)
	c.definition, c.parent, c.flags = withCapacity(c.definition, factor), withCapacity(c.parent, factor), withCapacity(c.flags, factor)
	b.source.reader.Designations = withCapacity(b.source.reader.Designations, factor)
	b.source.properties.rows, b.source.pairs = withCapacity(b.source.properties.rows, factor), withCapacity(b.source.pairs, factor)
}

// moveOffHeap moves a large code system off the heap. It frees temporary memory before the next code system is read. Garbage
// collection is cheap because the arrays contain no pointers.
func (b *Builder) moveOffHeap(t *Table) {
	m, texts := new(offheap.Memory), b.source.concepts.texts
	t.concepts.texts = slices.Clip(texts)
	if b.Memory.Contains(texts) {
		*m, b.Memory = b.Memory, offheap.Memory{}
	} else {
		offheap.Move(m, (*[]byte)(&t.concepts.texts))
		b.Memory.Release()
	}
	moveArrays(t, m)
	offheap.ReleaseWhenCollected(t, m)
	b.source = source{}
	debug.FreeOSMemory()
}

// withCapacity returns a list with a capacity of factor times its length.
func withCapacity[S ~[]T, T any](list S, factor float64) S {
	return slices.Grow(list, extraCapacity(len(list), factor))
}

// extraCapacity returns the number of elements to add to a list of n elements that grows by factor.
func extraCapacity(n int, factor float64) int { return max(1<<17, int(float64(n)*(factor-1))) }

// Reset prepares the builder for the next code system.
func (b *Builder) Reset() {
	b.source.reset()
	b.parent = noParent
}

// ReadPropertyDefinition reads an entry of CodeSystem.property.
func (b *Builder) ReadPropertyDefinition(r *fhirjson.Reader) error {
	return b.source.properties.readDefinition(r)
}

// ReadConcept reads an entry of CodeSystem.concept with its nested concepts.
func (b *Builder) ReadConcept(r *fhirjson.Reader) error {
	b.reserve(r)
	c := &b.source.concepts
	concept, parent := b.appendConcept(), b.parent
	c.parent[concept] = parent
	if parent != noParent {
		b.source.pairs = append(b.source.pairs, pair{from: parent, to: concept})
	}
	b.parent = concept
	err := r.Object(func(name []byte) error { return b.readConceptMember(r, concept, string(name)) })
	b.parent = parent
	if err == nil && len(c.codeOf(concept)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	return err
}

// appendConcept appends a concept without data and returns its number.
func (b *Builder) appendConcept() uint32 {
	c := &b.source.concepts
	c.code, c.display, c.definition = append(c.code, 0), append(c.display, 0), append(c.definition, 0)
	c.parent, c.flags = append(c.parent, noParent), append(c.flags, 0)
	return uint32(c.len() - 1)
}

// AddConcept adds a concept and returns its number. display and definition are texts that [Builder.AddText] returned, or 0. The
// same code must not be added twice.
func (b *Builder) AddConcept(code []byte, display, definition codesystem.TextRef, flags codesystem.Flags) uint32 {
	c, concept := &b.source.concepts, b.appendConcept()
	c.code[concept], c.display[concept], c.definition[concept], c.flags[concept] = c.texts.Append(code), display, definition, flags
	return concept
}

// Reserve reserves memory for texts of at most the given total size in bytes. Unused pages don't use memory. The table then
// stores large arrays off the heap.
func (b *Builder) Reserve(size int64) {
	b.Size = size
	b.source.concepts.texts = b.Memory.Grow(b.source.concepts.texts, int(size))
}

// AddText adds a text to the memory of the table and returns its reference for [Table.TextAt].
func (b *Builder) AddText(text []byte) codesystem.TextRef {
	return b.source.concepts.texts.Append(text)
}

// AddDesignation adds a designation, the value of which [Builder.AddText] returned. Rows are kept in order per concept.
func (b *Builder) AddDesignation(concept uint32, language string, use codesystem.Use, value codesystem.TextRef) {
	b.source.reader.AddDesignation(concept, language, use, value)
}

// AddParent adds a parent to a concept. Both may be added later.
func (b *Builder) AddParent(concept, parent uint32) {
	b.source.pairs = append(b.source.pairs, pair{from: parent, to: concept})
}

// DeclareProperty declares a property and returns its number for [Builder.AddValue]. There may be at most 65,535.
func (b *Builder) DeclareProperty(p codesystem.Property) uint16 {
	b.source.properties.list = append(b.source.properties.list, p)
	return uint16(len(b.source.properties.list) - 1)
}

// AddValue adds a value of a declared property to a concept. The Property of the value is ignored.
func (b *Builder) AddValue(concept uint32, property uint16, v codesystem.Value) {
	p, texts := &b.source.properties, &b.source.concepts.texts
	row := propertyRow{concept: concept, property: property, kind: valueKind(max(0, slices.Index(valueMembers[:], v.Member)))}
	row.value = p.appendText(texts, v.Text)
	if row.kind == valueCoding {
		row.coding = texts.Append(v.Coding)
	}
	p.rows = append(p.rows, row)
}

// AddString adds a string value of a declared property to a concept. [Builder.AddText] returned the value.
func (b *Builder) AddString(concept uint32, property uint16, value codesystem.TextRef) {
	b.source.properties.rows = append(b.source.properties.rows, propertyRow{concept: concept, property: property, kind: valueString, value: value})
}

func (b *Builder) readConceptMember(r *fhirjson.Reader, concept uint32, name string) error {
	c, reader := &b.source.concepts, &b.source.reader
	switch name {
	case "code":
		return c.texts.Read(r, &c.code[concept])
	case "display":
		return c.texts.Read(r, &c.display[concept])
	case "definition":
		return c.texts.Read(r, &c.definition[concept])
	case "designation":
		return r.Array(func() error { return reader.ReadDesignation(r, &c.texts, concept) })
	case "extension":
		return reader.ReadExtensions(r, &c.texts, concept)
	case "modifierExtension":
		return b.Modifiers(r)
	case "property":
		return r.Array(func() error { return b.source.properties.read(r, &c.texts, concept) })
	case "concept":
		return r.Array(func() error { return b.ReadConcept(r) })
	default:
		return r.Skip()
	}
}

// Build returns the table of the concepts. language is the language of their displays.
func (b *Builder) Build(language string, caseSensitive bool) (*Table, error) {
	read := &b.source
	read.indexCodes()
	if uint64(len(read.concepts.texts)) > math.MaxUint32 {
		return nil, errors.New("more than 4 GiB of text")
	}
	read.addPropertyRelations()
	read.setFlags()
	n := read.concepts.len()
	t := &Table{
		concepts: read.concepts, language: language, indexes: new(searchIndexes), searchesOwnLanguage: b.SearchesOwnLanguage,
		designations: newDesignations(n, &read.reader), extensions: newConceptExtensions(read.reader.Extensions),
		children: newRelation(n, read.pairs), parents: newRelation(n, invertPairs(read.pairs)),
		properties: read.properties.list, values: read.properties.sortByConcept(n),
	}
	c := &t.concepts
	c.caseSensitive = caseSensitive
	c.code, c.display, c.flags = slices.Clone(c.code), slices.Clone(c.display), slices.Clone(c.flags)
	c.definition, c.parent = cloneUsed(c.definition, 0), cloneUsed(c.parent, noParent)
	if len(c.texts) >= largeTextSize && b.Size > 0 { // the code system of a request is short-lived
		b.moveOffHeap(t)
	} else {
		c.texts = slices.Clone(c.texts)
	}
	return t, nil
}

// cloneUsed returns a copy of a list, or nil if all items equal unused.
func cloneUsed[T ~uint32](list []T, unused T) []T {
	if !slices.ContainsFunc(list, func(v T) bool { return v != unused }) {
		return nil
	}
	return slices.Clone(list)
}

// source contains the content of a code system in source order.
type source struct {
	concepts   concepts
	reader     codesystem.ConceptReader
	properties propertyRows
	pairs      []pair // parents and their children
}

// reset clears the source but retains its memory, except for slices that a table shares.
func (s *source) reset() {
	c := &s.concepts
	s.concepts = concepts{
		texts: c.texts[:0], code: c.code[:0], display: c.display[:0], definition: c.definition[:0], parent: c.parent[:0], flags: c.flags[:0],
	}
	s.reader.Reset()
	s.properties = propertyRows{rows: s.properties.rows[:0]}
	s.pairs = s.pairs[:0]
}

// indexCodes builds the index of codes. Some code systems repeat a concept under each of its parents. Repetitions are dropped,
// and their data is assigned to the first occurrence.
func (s *source) indexCodes() {
	s.concepts.index = newCodeIndex(s.concepts.len())
	first := []uint32(nil) // by concept: number of its first occurrence; nil until a repetition is dropped
	unique := uint32(0)
	for concept := range uint32(s.concepts.len()) {
		code := s.concepts.codeOf(concept)
		if same, found := s.concepts.locateExact(code); found {
			if first == nil {
				first = identityPermutation(s.concepts.len())
			}
			first[concept] = same
			continue
		}
		s.concepts.code[unique], s.concepts.display[unique] = s.concepts.code[concept], s.concepts.display[concept]
		s.concepts.definition[unique], s.concepts.parent[unique] = s.concepts.definition[concept], s.concepts.parent[concept]
		s.concepts.flags[unique] = s.concepts.flags[concept]
		s.concepts.index.insert(code, unique)
		if first != nil {
			first[concept] = unique
		}
		unique++
	}
	s.concepts.code, s.concepts.display = s.concepts.code[:unique], s.concepts.display[:unique]
	s.concepts.definition, s.concepts.parent = s.concepts.definition[:unique], s.concepts.parent[:unique]
	s.concepts.flags = s.concepts.flags[:unique]
	if first != nil {
		s.renumber(first)
	}
}

func identityPermutation(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// renumber replaces each concept number n by to[n] in all data.
func (s *source) renumber(to []uint32) {
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
	for i, parent := range s.concepts.parent {
		if parent != noParent {
			s.concepts.parent[i] = to[parent]
		}
	}
}

// addPropertyRelations adds pairs for the properties parent and child. It ignores values that are not codes of the code system.
func (s *source) addPropertyRelations() {
	for i, p := range s.properties.list {
		isParent, isChild := p.IsStandard("parent"), p.IsStandard("child")
		if !isParent && !isChild {
			continue
		}
		for _, row := range s.properties.rows {
			if int(row.property) != i {
				continue
			}
			other, ok := s.concepts.locateExact(s.concepts.texts.At(row.value))
			if ok && isParent {
				s.pairs = append(s.pairs, pair{from: other, to: row.concept})
			} else if ok {
				s.pairs = append(s.pairs, pair{from: row.concept, to: other})
			}
		}
	}
}

// flagProperties are the standard properties on which flags depend.
var flagProperties = []string{"notSelectable", "user-assigned", "inactive", "status", "deprecated", "deprecationDate"}

func (s *source) setFlags() {
	hasFlags := make([]bool, len(s.properties.list))
	for i, p := range s.properties.list {
		hasFlags[i] = slices.ContainsFunc(flagProperties, p.IsStandard)
	}
	for _, row := range s.properties.rows {
		if !hasFlags[row.property] {
			continue
		}
		s.concepts.flags[row.concept] |= flagsOf(s.properties.list[row.property], string(s.concepts.texts.At(row.value)))
	}
	for _, d := range s.reader.Designations {
		s.concepts.flags[d.Owner] |= codesystem.FlagHasDesignations
	}
	for _, x := range s.reader.Extensions {
		s.concepts.flags[x.Owner] |= codesystem.FlagHasExtensions
		if x.Kind == codesystem.ExtensionStandardsStatus {
			s.concepts.flags[x.Owner] |= codesystem.FlagHasStatus
			if bytes.Contains(s.concepts.texts.At(x.Value), []byte(`"withdrawn"`)) {
				s.concepts.flags[x.Owner] |= codesystem.FlagInactive
			}
		}
	}
}

// flagsOf returns the flags that a concept has because of a property value.
func flagsOf(p codesystem.Property, value string) (flags codesystem.Flags) {
	switch {
	case p.IsStandard("notSelectable") && value == "true":
		return codesystem.FlagAbstract
	case p.IsStandard("user-assigned") && value == "true":
		return codesystem.FlagUserAssigned
	case p.IsStandard("inactive") && value == "true":
		return codesystem.FlagInactive | codesystem.FlagHasStatus
	case p.IsStandard("status") && (value == "retired" || value == "inactive"):
		return codesystem.FlagInactive | codesystem.FlagHasStatus
	case p.IsStandard("status") && !strings.EqualFold(value, "active") && value != "":
		return codesystem.FlagHasStatus
	case p.IsStandard("deprecated") && value != "false" && value != "", p.IsStandard("deprecationDate") && value != "":
		return codesystem.FlagDeprecated | codesystem.FlagHasStatus
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

// propertyRows contains the properties of a code system and their values in source order.
type propertyRows struct {
	list []codesystem.Property
	rows []propertyRow
}

// readDefinition reads an entry of CodeSystem.property.
func (p *propertyRows) readDefinition(r *fhirjson.Reader) error {
	var property codesystem.Property
	err := r.Strings(fhirjson.String{Name: "code", Destination: &property.Code}, fhirjson.String{Name: "uri", Destination: &property.URI})
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

// read reads an entry of concept.property. Its texts are appended to t.
func (p *propertyRows) read(r *fhirjson.Reader, t *codesystem.Texts, concept uint32) error {
	row, coded := propertyRow{concept: concept}, false
	err := r.Object(func(name []byte) error {
		switch {
		case string(name) == "code":
			coded = true
			return p.readCode(r, &row.property)
		case string(name) == "valueCoding":
			row.kind = valueCoding
			return row.readCoding(r, t)
		case bytes.HasPrefix(name, []byte("value")):
			row.kind = valueKind(max(0, slices.Index(valueMembers[:], string(name))))
			s, err := r.Primitive()
			row.value = p.appendText(t, s)
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

// appendText appends a property value unless it equals the previous one. Siblings often have the same parent and status.
func (p *propertyRows) appendText(t *codesystem.Texts, value []byte) codesystem.TextRef {
	if last := len(p.rows) - 1; last >= 0 && bytes.Equal(t.At(p.rows[last].value), value) {
		return p.rows[last].value
	}
	return t.Append(value)
}

// readCode reads the code of a property into index. It adds the property if it is not declared.
func (p *propertyRows) readCode(r *fhirjson.Reader, index *uint16) error {
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

// readCoding reads a valueCoding. The code is stored for filters, and the entire Coding for responses.
func (row *propertyRow) readCoding(r *fhirjson.Reader, t *codesystem.Texts) error {
	whole, err := r.CompactValue('{')
	if err != nil {
		return err
	}
	row.coding = t.Append(whole)
	inner := fhirjson.NewValueReader(whole)
	return inner.Object(func(name []byte) error {
		if string(name) == "code" {
			return t.Read(inner, &row.value)
		}
		return inner.Skip()
	})
}

// sortByConcept returns the property values sorted by their n concepts.
func (p *propertyRows) sortByConcept(n int) propertyValues {
	if len(p.rows) == 0 {
		return propertyValues{}
	}
	from, order := SortByOwner(n, len(p.rows), func(i int) (uint32, uint32) { return p.rows[i].concept, uint32(i) })
	values := propertyValues{rowOffsets: from, property: make([]uint16, len(order)), kind: make([]valueKind, len(order)), value: make([]codesystem.TextRef, len(order))}
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
