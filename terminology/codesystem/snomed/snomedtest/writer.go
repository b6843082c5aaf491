package snomedtest

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// writer writes the rows of a file.
type writer struct {
	edition Edition
	out     io.Writer
	buffer  []byte
	rows    int
	err     error
}

// line writes a line of tab-separated fields.
func (w *writer) line(fields ...string) {
	for i, field := range fields {
		if i > 0 {
			w.buffer = append(w.buffer, '\t')
		}
		w.buffer = append(w.buffer, field...)
	}
	if w.buffer = append(w.buffer, "\r\n"...); len(w.buffer) > 1<<16 {
		w.flush()
	}
}

func (w *writer) flush() {
	if w.err == nil {
		_, w.err = w.out.Write(w.buffer)
	}
	w.buffer = w.buffer[:0]
}

// row writes an active component.
func (w *writer) row(c *concept, id string, fields ...string) {
	w.line(append([]string{id, "20250101", "1", c.module}, fields...)...)
}

// member writes an active row of a reference set.
func (w *writer) member(c *concept, refset, component string, fields ...string) {
	w.rows++
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x", w.rows, c.number&0xffffff)
	w.row(c, id, append([]string{refset, component}, fields...)...)
}

func (w *writer) concept(c *concept) {
	active, status := "1", "900000000000074008"
	if !c.active {
		active = "0"
	}
	if c.defined {
		status = "900000000000073002"
	}
	w.line(c.id, w.edition.Date, active, c.module, status)
}

// Items of the descriptions of a concept.
const (
	itemFSN = iota
	itemPreferred
	itemSynonym
	itemBritish
	itemSwedish
	itemFormer
	itemDefinition
	itemsPerConcept
)

// descriptionID returns the identifier of a description of a concept.
func (c *concept) descriptionID(item int) string {
	return SCTID(100_000+c.index*itemsPerConcept+item, "01")
}

// isBritish reports whether a concept has another preferred term in British English.
func (c *concept) isBritish() bool { return c.number%20 == 3 }

func (w *writer) descriptions(c *concept) {
	add := func(item int, active, language, kind, term string) {
		w.line(c.descriptionID(item), "20250101", active, c.module, c.id, language, kind, term, "900000000000448009")
	}
	add(itemFSN, "1", "en", "900000000000003001", c.term+" (finding)")
	add(itemPreferred, "1", "en", "900000000000013009", c.term)
	if c.number >= 0 {
		words := strings.Fields(c.term)
		add(itemSynonym, "1", "en", "900000000000013009", term(c.random)+" "+words[0])
	}
	if c.isBritish() {
		add(itemBritish, "1", "en", "900000000000013009", "Colour of "+c.term)
	}
	if w.edition.Swedish {
		add(itemSwedish, "1", "sv", "900000000000013009", "Sjukdom "+c.term)
	}
	if c.number%30 == 7 {
		add(itemFormer, "0", "en", "900000000000013009", "Former "+c.term)
	}
}

func (w *writer) definitions(c *concept) {
	if c.number%50 == 1 {
		w.line(c.descriptionID(itemDefinition), "20250101", "1", c.module, c.id, "en", "900000000000550004", "Definition of "+c.term, "900000000000448009")
	}
}

// Modifiers of inferred relationships: characteristic type and modifier.
var inferredRow = []string{"900000000000011006", "900000000000451002"}

func (w *writer) relationship(c *concept, destination string, group int, kind string) {
	w.rows++
	w.row(c, SCTID(1_000_000+w.rows, "02"), append([]string{c.id, destination, strconv.Itoa(group), kind}, inferredRow...)...)
}

func (w *writer) relationships(c *concept) {
	if c.number < 0 {
		for _, m := range w.edition.metadata() {
			if m[0] == c.id && m[1] != "" {
				w.relationship(c, m[1], 0, "116680003")
			}
		}
		return
	}
	if !c.active {
		return
	}
	if len(c.parents) == 0 {
		w.relationship(c, ClinicalFinding, 0, "116680003")
	}
	for _, parent := range c.parents {
		w.relationship(c, Concept(parent), 0, "116680003")
	}
	for i := range c.random.IntN(6) { // 2.5 on average, of eleven in twelve concepts
		kind := FindingSite
		if i%2 == 1 {
			kind = AssociatedWith
		}
		w.relationship(c, Concept(activeAt(c.random.IntN(c.number/8+1))), i/2, kind)
	}
}

func (w *writer) concreteValues(c *concept) {
	if c.active && c.number%40 == 5 {
		w.row(c, SCTID(9_000_000+c.number, "02"), append([]string{c.id, "#" + strconv.Itoa(c.number%500), "1", Strength}, inferredRow...)...)
	}
}

// identifiers writes LOINC codes such as 7-7. Half of them are inactive.
func (w *writer) identifiers(c *concept) {
	if w.edition.Identifiers && c.number%10 == 7 {
		w.line(fmt.Sprintf("%d-%d", c.number, c.number%10), "20250101", strconv.Itoa(1-c.number/10%2), c.module, LOINCScheme, c.id)
	}
}

func (w *writer) languages(c *concept) {
	const us, gb, preferred, acceptable = "900000000000509007", "900000000000508004", "900000000000548007", "900000000000549004"
	add := func(refset string, item int, acceptability string) {
		w.member(c, refset, c.descriptionID(item), acceptability)
	}
	for _, refset := range []string{us, gb} {
		add(refset, itemFSN, preferred)
		switch {
		case !c.isBritish():
			add(refset, itemPreferred, preferred)
		case refset == us:
			add(us, itemPreferred, preferred)
		default:
			add(gb, itemBritish, preferred)
		}
		if c.number >= 0 {
			add(refset, itemSynonym, acceptable)
		}
	}
	if w.edition.Swedish {
		add(SwedishRefset, itemSwedish, preferred)
	}
}

func (w *writer) simple(c *concept) {
	if c.number >= 0 && c.number%10 == 4 {
		w.member(c, SimpleRefset, c.id)
	}
}

// associations refers from each inactive concept to the concept before it.
func (w *writer) associations(c *concept) {
	if !c.active {
		w.member(c, ReplacedBy, c.id, Concept(c.number-1))
	}
}

func (w *writer) inactivations(c *concept) {
	if !c.active {
		w.member(c, InactivationRows, c.id, "900000000000482003")
	}
}

func (w *writer) simpleMap(c *concept) {
	if c.active && c.number%3 == 0 {
		w.member(c, CTV3Map, c.id, fmt.Sprintf("X%04d", c.number))
	}
}

// extendedMap maps to ICD-10: some concepts depend on the age, and some need two codes.
func (w *writer) extendedMap(c *concept) {
	if !c.active || c.number < 0 || c.number%2 == 1 {
		return
	}
	add := func(group, priority, rule, advice, target string) {
		w.member(c, ICD10Map, c.id, group, priority, rule, advice, target, "447561005", "447637006")
	}
	code := fmt.Sprintf("%c%02d.%d", 'A'+c.number%26, c.number%100, c.number/100%10)
	if c.number%16 == 2 {
		add("1", "1", "IFA 445518008 | Age at onset of clinical finding | < 28.0 days", "IF AGE AT ONSET BEFORE 28 DAYS CHOOSE P"+code[1:], "P"+code[1:])
		add("1", "2", "OTHERWISE TRUE", "ALWAYS "+code, code)
	} else {
		add("1", "1", "TRUE", "ALWAYS "+code, code)
	}
	if c.number%32 == 4 {
		add("2", "1", "TRUE", "ALWAYS B95.0", "B95.0")
	}
}

func (w *writer) dependencies(c *concept) {
	add := func(module, target string) {
		w.rows++
		w.line(fmt.Sprintf("%08x-0000-4000-8000-000000000000", w.rows), w.edition.Date, "1", module, "900000000000534007", target, w.edition.Date, w.edition.Date)
	}
	if c.id == Root {
		add(coreModule, metadataModule)
		if w.edition.Swedish {
			add(SwedishModule, coreModule)
		}
	}
}
