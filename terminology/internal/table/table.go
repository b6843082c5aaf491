// Package table stores the concepts of a CodeSystem resource in flat arrays without pointers.
//
//	CodeSystem.concept ──► Builder ──► Table
//	   tokens               builder.go    table.go, with the hierarchy in relation.go
//
// A search index is built for each requested language list (corpus.go). It takes usage weights into account.
package table

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Table stores the concepts of a code system in flat arrays indexed by concept number. The arrays contain no pointers, so that
// the garbage collector can ignore them and large ones can be stored off the heap.
type Table struct {
	concepts     concepts
	language     string // language of the displays; "" if unknown
	designations designations
	extensions   conceptExtensions

	parents, children relation
	properties        []codesystem.Property
	values            propertyValues

	weights []float64      // usage weights by concept; nil if unknown
	indexes *searchIndexes // search indexes, built on demand

	searchesOwnLanguage bool // see [Builder]
}

// Len returns the number of concepts.
func (t *Table) Len() int { return t.concepts.len() }

// Locate returns the concept with the given code.
func (t *Table) Locate(code []byte) (codesystem.Concept, bool) {
	concept, ok := t.concepts.locate(code)
	return codesystem.ConceptAt(concept), ok
}

// Code returns the code of a concept.
func (t *Table) Code(c codesystem.Concept) []byte { return t.concepts.codeOf(c.Number) }

// Concept returns the code, display and flags of a concept.
func (t *Table) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	return t.concepts.codeOf(c.Number), t.concepts.displayOf(c.Number), t.concepts.flags[c.Number]
}

// TextAt returns a text that [Builder.AddText] added.
func (t *Table) TextAt(ref codesystem.TextRef) []byte { return t.concepts.texts.At(ref) }

// Definition returns the definition of a concept, or nil.
func (t *Table) Definition(c codesystem.Concept) []byte { return t.concepts.definitionOf(c.Number) }

// AppendTexts appends the display and designations of a concept.
func (t *Table) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	return t.appendTexts(dst, c.Number, nil)
}

// appendTexts is like AppendTexts, but appends only designations in some languages. nil means all.
func (t *Table) appendTexts(dst []codesystem.Text, concept uint32, inLanguage []bool) []codesystem.Text {
	if display := t.concepts.displayOf(concept); len(display) > 0 {
		dst = append(dst, codesystem.Text{Language: t.language, Use: codesystem.PreferredForLanguage, Value: display, IsDisplay: true})
	}
	for row, end := t.designations.from.rows(concept); row < end; row++ {
		if inLanguage == nil || inLanguage[t.designations.language[row]] {
			dst = append(dst, t.designations.text(row, t.concepts.texts))
		}
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

// Properties returns the declared properties of concepts.
func (t *Table) Properties() []codesystem.Property { return t.properties }

// AppendValues appends the values of all properties of a concept.
func (t *Table) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	values := &t.values
	for row, end := values.rowOffsets.rows(c.Number); row < end; row++ {
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

// Values calls visit with the values of a property of a concept until visit returns false.
func (t *Table) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	for row, end := t.values.rowOffsets.rows(c.Number); row < end; row++ {
		if int(t.values.property[row]) == property && !visit(t.concepts.texts.At(t.values.value[row])) {
			return
		}
	}
}

// Language returns the language of the displays; "" if unknown.
func (t *Table) Language() string { return t.language }

// languages returns the languages of all texts. The language of the displays comes first.
func languages(t *Table) []string { return append([]string{t.language}, t.designations.languages...) }

// HasLanguage reports whether there are texts in a language or a similar one.
func (t *Table) HasLanguage(language string) bool {
	return codesystem.HasLanguage(languages(t), language)
}

// Parents returns the direct parents of a concept.
func (t *Table) Parents(concept uint32) []uint32 { return t.parents.related(concept) }

// Children returns the direct children of a concept.
func (t *Table) Children(concept uint32) []uint32 { return t.children.related(concept) }

// Above returns all ancestors of a concept. It charges the cost with spend.
func (t *Table) Above(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return t.parents.closure(t.Len(), concept, spend)
}

// Below returns all descendants of a concept. It charges the cost with spend.
func (t *Table) Below(concept uint32, spend func(steps int) error) (bitset.Set, error) {
	return t.children.closure(t.Len(), concept, spend)
}

// moveArrays moves the arrays of a table off the heap, except texts.
func moveArrays(t *Table, m *offheap.Memory) {
	d, v := &t.designations, &t.values
	offheap.Move(m, &t.concepts.code, &t.concepts.display, &t.concepts.definition, &d.value, &d.extension, &v.value, &v.coding)
	offheap.Move(m, (*[]uint32)(&t.concepts.index), &t.concepts.parent, (*[]uint32)(&d.from), (*[]uint32)(&v.rowOffsets))
	offheap.Move(m, (*[]uint32)(&t.parents.from), &t.parents.to, (*[]uint32)(&t.children.from), &t.children.to)
	offheap.Move(m, &d.language, &d.use, &v.property)
	offheap.Move(m, &t.concepts.flags)
	offheap.Move(m, &v.kind)
}

var (
	_ codesystem.System       = (*Table)(nil)
	_ codesystem.List         = (*Table)(nil)
	_ codesystem.Hierarchy    = (*Table)(nil)
	_ codesystem.Filterable   = (*Table)(nil)
	_ codesystem.Annotations  = (*Table)(nil)
	_ codesystem.Multilingual = (*Table)(nil)
	_ codesystem.Searchable   = (*Table)(nil)
)

// noParent is the parent of top-level concepts in concepts.parent.
const noParent = ^uint32(0)

// concepts contains the texts of each concept and its position in the hierarchy, indexed by concept number.
type concepts struct {
	caseSensitive bool

	texts      codesystem.Texts
	code       []codesystem.TextRef
	display    []codesystem.TextRef // 0 if the concept has no display
	definition []codesystem.TextRef // concept.definition; 0 if absent; nil if no concept has a definition
	flags      []codesystem.Flags
	index      codeIndex
	parent     []uint32 // parent according to nesting, or noParent; nil if no concepts are nested
}

// len returns the number of concepts.
func (c *concepts) len() int { return len(c.code) }

func (c *concepts) codeOf(concept uint32) []byte { return c.texts.At(c.code[concept]) }

// displayOf returns the display of a concept, or nil.
func (c *concepts) displayOf(concept uint32) []byte { return c.texts.At(c.display[concept]) }

// definitionOf returns the definition of a concept, or nil.
func (c *concepts) definitionOf(concept uint32) []byte {
	if c.definition == nil {
		return nil
	}
	return c.texts.At(c.definition[concept])
}

// locate returns the concept with the given code. It ignores case if the code system is case-insensitive.
func (c *concepts) locate(code []byte) (concept uint32, ok bool) {
	concept, ok = c.locateExact(code)
	if ok || c.caseSensitive {
		return concept, ok
	}
	return c.index.find(code, func(other uint32) bool { return codesystem.EqualFold(c.codeOf(other), code) })
}

// locateExact returns the concept with the given code, which must match exactly.
func (c *concepts) locateExact(code []byte) (uint32, bool) {
	return c.index.find(code, func(other uint32) bool { return bytes.Equal(c.codeOf(other), code) })
}

// codeIndex is a hash table of concept numbers plus one with open addressing. It hashes codes in lower case, so that it can be
// used for case-sensitive and case-insensitive code systems.
type codeIndex []uint32

// find returns the concept with the given code. equal compares the code with that of a concept.
func (x codeIndex) find(code []byte, equal func(concept uint32) bool) (uint32, bool) {
	if len(x) == 0 {
		return 0, false
	}
	mask := uint32(len(x) - 1)
	for slot := hashFoldedCase(code) & mask; x[slot] != 0; slot = (slot + 1) & mask {
		if concept := x[slot] - 1; equal(concept) {
			return concept, true
		}
	}
	return 0, false
}

// insert adds a concept with a code that is not in the table. The table must have an unused slot.
func (x codeIndex) insert(code []byte, concept uint32) {
	mask := uint32(len(x) - 1)
	slot := hashFoldedCase(code) & mask
	for x[slot] != 0 {
		slot = (slot + 1) & mask
	}
	x[slot] = concept + 1
}

// newCodeIndex returns a table for n concepts that is at most two thirds full.
func newCodeIndex(n int) codeIndex {
	size := 4
	for size*2 < n*3 {
		size *= 2
	}
	return make(codeIndex, size)
}

// hashFoldedCase returns the FNV-1a hash of a code in lower case.
func hashFoldedCase(code []byte) uint32 {
	hash := uint32(2166136261)
	for i := 0; i < len(code); {
		r, width := rune(code[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRune(code[i:])
		}
		hash = (hash ^ uint32(textindex.FoldCase(r))) * 16777619
		i += width
	}
	return hash
}

// designations contains all designations; rows [from[i], from[i+1]) belong to concept i. from is nil if there are none.
type designations struct {
	from      offsets
	language  []uint16 // index in languages
	use       []uint16 // index in uses
	value     []codesystem.TextRef
	extension []codesystem.TextRef // JSON arrays of extensions; nil if there are none

	languages []string         // languages[0] means that there is none
	uses      []codesystem.Use // uses[0] means that there is none
}

// newDesignations returns the designations of a reader, sorted by their n concepts.
func newDesignations(n int, read *codesystem.ConceptReader) designations {
	rows := read.Designations
	if len(rows) == 0 {
		return designations{languages: read.Languages, uses: read.Uses}
	}
	from, order := SortByOwner(n, len(rows), func(i int) (uint32, uint32) { return rows[i].Owner, uint32(i) })
	d := designations{
		from: from, language: make([]uint16, len(rows)),
		use: make([]uint16, len(rows)), value: make([]codesystem.TextRef, len(rows)),
		languages: read.Languages, uses: read.Uses,
	}
	for i, row := range order {
		d.language[i], d.use[i], d.value[i] = rows[row].Language, rows[row].Use, rows[row].Value
		if rows[row].Extension != 0 {
			if d.extension == nil {
				d.extension = make([]codesystem.TextRef, len(rows))
			}
			d.extension[i] = rows[row].Extension
		}
	}
	return d
}

// text returns the designation in a row.
func (d *designations) text(row uint32, texts codesystem.Texts) codesystem.Text {
	text := codesystem.Text{Language: d.languages[d.language[row]], Use: d.uses[d.use[row]], Value: texts.At(d.value[row])}
	if d.extension != nil {
		text.Extension = texts.At(d.extension[row])
	}
	return text
}

// conceptExtensions contains the extensions included in responses, sorted by concept. Few concepts have any.
type conceptExtensions struct {
	owner []uint32
	kind  []codesystem.ExtensionKind
	value []codesystem.TextRef // value[x] as a JSON member, e.g. "valueString":"x"
}

func newConceptExtensions(rows []codesystem.ExtensionRow) conceptExtensions {
	slices.SortStableFunc(rows, func(a, b codesystem.ExtensionRow) int { return int(a.Owner) - int(b.Owner) })
	var x conceptExtensions
	for _, row := range rows {
		x.owner, x.kind, x.value = append(x.owner, row.Owner), append(x.kind, row.Kind), append(x.value, row.Value)
	}
	return x
}

func (x *conceptExtensions) rows(owner uint32) (from, to int) {
	from, _ = slices.BinarySearch(x.owner, owner)
	for to = from; to < len(x.owner) && x.owner[to] == owner; to++ {
	}
	return from, to
}

// get returns the extension of the given kind of a concept, or 0.
func (x *conceptExtensions) get(owner uint32, kind codesystem.ExtensionKind) codesystem.TextRef {
	from, to := x.rows(owner)
	for row := from; row < to; row++ {
		if x.kind[row] == kind {
			return x.value[row]
		}
	}
	return 0
}

type valueKind uint8

const (
	valueCode valueKind = iota
	valueCoding
	valueString
	valueInteger
	valueBoolean
	valueDateTime
	valueDecimal
)

// valueMembers contains the names of value[x] by valueKind.
var valueMembers = [...]string{
	"valueCode", "valueCoding", "valueString", "valueInteger", "valueBoolean", "valueDateTime", "valueDecimal",
}

// propertyValues contains the property values of all concepts. Rows [rowOffsets[i], rowOffsets[i+1]) belong to concept i.
type propertyValues struct {
	rowOffsets offsets
	property   []uint16 // index in Table.properties
	kind       []valueKind
	value      []codesystem.TextRef // value as text; for a Coding, its code
	coding     []codesystem.TextRef // Coding as JSON, or 0; nil if there are no Codings
}

// Status returns the status of a concept, or "" if it is active.
func (t *Table) Status(c codesystem.Concept) string {
	concept := c.Number
	if status := statusProperty(t, concept); status != "" {
		return status
	}
	value := t.concepts.texts.At(t.extensions.get(concept, codesystem.ExtensionStandardsStatus))
	if status := strings.Trim(fhirjson.ValueText(value), `"`); status == "deprecated" || status == "withdrawn" {
		return status
	}
	switch flags := t.concepts.flags[concept]; {
	case flags&codesystem.FlagDeprecated != 0:
		return "deprecated"
	case flags&codesystem.FlagInactive != 0:
		return "inactive"
	}
	return ""
}

// statusProperty returns the value of the property status, or "" if it is active.
func statusProperty(t *Table, concept uint32) string {
	for i, p := range t.properties {
		if !p.IsStandard("status") {
			continue
		}
		var status string
		t.Values(codesystem.ConceptAt(concept), i, func(value []byte) bool { status = string(value); return false })
		if status != "" && !strings.EqualFold(status, "active") {
			return status
		}
	}
	return ""
}

// AppendConcepts appends the JSON member "concept", preceded by a comma. Concepts are nested as in the definition. It appends
// nothing if there are no concepts.
func (t *Table) AppendConcepts(dst []byte) []byte {
	if t.Len() == 0 {
		return dst
	}
	dst = append(dst, `,"concept":[`...)
	var within []uint32
	for concept := range uint32(t.Len()) {
		parent := noParent
		if t.concepts.parent != nil {
			parent = t.concepts.parent[concept]
		}
		switch {
		case concept == 0:
		case parent == concept-1:
			within = append(within, parent)
			dst = append(dst, `,"concept":[`...)
		default:
			for dst = append(dst, '}'); len(within) > 0 && within[len(within)-1] != parent; within = within[:len(within)-1] {
				dst = append(dst, `]}`...)
			}
			dst = append(dst, ',')
		}
		dst = appendConcept(dst, t, concept)
	}
	for dst = append(dst, '}'); len(within) > 0; within = within[1:] {
		dst = append(dst, `]}`...)
	}
	return append(dst, ']')
}

// appendConcept appends the JSON of a concept without the closing brace.
func appendConcept(dst []byte, t *Table, concept uint32) []byte {
	dst = fhirjson.AppendString(append(dst, `{"code":`...), t.concepts.codeOf(concept))
	dst = fhirjson.AppendMember(dst, "display", t.concepts.displayOf(concept))
	dst = fhirjson.AppendMember(dst, "definition", t.concepts.definitionOf(concept))
	list := fhirjson.Array{Name: "designation"}
	for row, end := t.designations.from.rows(concept); row < end; row++ {
		d := t.designations.text(row, t.concepts.texts)
		dst = d.AppendForDefinition(list.Next(dst))
	}
	dst = list.End(dst)
	list = fhirjson.Array{Name: "property"}
	for _, v := range t.AppendValues(nil, codesystem.ConceptAt(concept)) {
		dst = fhirjson.AppendString(append(list.Next(dst), `{"code":`...), v.Property.Code)
		dst = append(append(append(dst, ',', '"'), v.Member...), '"', ':')
		dst = append(v.AppendJSON(dst), '}')
	}
	return list.End(dst)
}
