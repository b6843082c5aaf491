package snomed

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// URL is the URL of SNOMED CT.
const URL = "http://snomed.info/sct"

// System is a version of an edition of SNOMED CT. Concepts, terms and the is-a hierarchy are in the table. Its arrays contain no
// pointers, and large ones are off the heap.
type System struct {
	*table.Table
	edition edition

	active, defined bitset.Set // by concept
	module          []uint16   // by concept: index in modules
	effective       []date     // by concept
	modules         []uint64   // identifiers of modules

	descriptions descriptions
	tags         []string // languages of displays and designations, that of the displays first
	attributes   attributes
	refsets      map[sctid]*refset
	refsetTexts  codesystem.Texts

	// content and constraints return the content and the evaluator of expression constraints. They are created on first use.
	content     func() *eclContent
	constraints func() *ecl.Evaluator

	properties   []codesystem.Property
	associations []sctid // reference sets that are properties, sorted
}

// attributes are the active inferred relationships except is-a. Rows from[i]:from[i+1] have the source i. Rows
// byDestination[to[i]:to[i+1]] have the destination i.
type attributes struct {
	from, to, byDestination      []uint32
	source, kind, destination    []uint32
	group                        []uint16
	concreteSource, concreteKind []uint32 // sorted by source
	concreteGroup                []uint16
	concreteValue                []codesystem.TextRef // in texts
	texts                        codesystem.Texts
	kinds                        []uint32 // attribute types, sorted
}

// rowsOf returns the rows with a source.
func (a *attributes) rowsOf(source uint32) (from, to uint32) { return a.from[source], a.from[source+1] }

// concreteRowsOf returns the rows of concrete values with a source.
func (a *attributes) concreteRowsOf(source uint32) (from, to int) {
	from, _ = slices.BinarySearch(a.concreteSource, source)
	for to = from; to < len(a.concreteSource) && a.concreteSource[to] == source; to++ {
	}
	return from, to
}

// build returns the system of the files that were read.
func (l *loader) build() (*System, error) {
	order, err := l.sortConcepts()
	if err != nil {
		return nil, err
	}
	e, err := l.edition()
	if err != nil {
		return nil, err
	}
	position := make([]uint32, len(order))
	for number, old := range order {
		position[old] = uint32(number)
	}
	l.refsets.addOthers()
	if l.refsets.sort(position); len(l.refsets.texts) >= textCell {
		return nil, errors.New("more than 2 GiB of text in reference sets")
	}
	s := &System{edition: e, refsets: l.refsets.sets, refsetTexts: l.refsets.texts, descriptions: l.descriptions.sorted(position)}
	for _, id := range l.modules.ids {
		s.modules = append(s.modules, uint64(id))
	}
	s.module, s.effective = permute(l.concepts.module, order), permute(l.concepts.effective, order)
	s.active, s.defined = setOf(permute(l.concepts.active, order)), setOf(permute(l.concepts.defined, order))
	s.attributes = l.sortedAttributes(position)
	if s.Table, err = l.buildTable(s, order, position); err != nil {
		return nil, err
	}
	s.declareProperties()
	s.content = sync.OnceValue(func() *eclContent { return newECLContent(s) })
	s.constraints = sync.OnceValue(func() *ecl.Evaluator { return ecl.NewEvaluator(s.content(), eclCacheBytes) })
	s.moveOffHeap()
	return s, nil
}

// setOf returns the set of the indexes of true values.
func setOf(values []bool) bitset.Set {
	set := bitset.New(len(values))
	for i, value := range values {
		if value {
			set.Add(uint32(i))
		}
	}
	return set
}

// sortedAttributes returns the relationships sorted by source and destination.
func (l *loader) sortedAttributes(position []uint32) attributes {
	for _, column := range [][]uint32{l.attributes.source, l.attributes.kind, l.attributes.destination, l.concrete.source, l.concrete.kind} {
		for i, old := range column {
			column[i] = position[old]
		}
	}
	var a attributes
	var order []uint32
	a.from, order = groupByOwner(len(position), l.attributes.source)
	for source := range position {
		slices.SortStableFunc(order[a.from[source]:a.from[source+1]], func(a, b uint32) int { return int(l.attributes.group[a]) - int(l.attributes.group[b]) })
	}
	a.source, a.kind, a.destination = permute(l.attributes.source, order), permute(l.attributes.kind, order), permute(l.attributes.destination, order)
	a.group = permute(l.attributes.group, order)
	a.to, a.byDestination = groupByOwner(len(position), a.destination)
	_, order = groupByOwner(len(position), l.concrete.source)
	a.concreteSource, a.concreteKind = permute(l.concrete.source, order), permute(l.concrete.kind, order)
	a.concreteGroup, a.concreteValue, a.texts = permute(l.concrete.group, order), permute(l.concrete.value, order), l.concrete.texts
	used := bitset.New(len(position))
	for _, kinds := range [][]uint32{a.kind, a.concreteKind} {
		for _, kind := range kinds {
			used.Add(kind)
		}
	}
	used.Each(func(kind uint32) { a.kinds = append(a.kinds, kind) })
	return a
}

// Uses of designations.
var (
	fsnUse     = codesystem.Use{System: URL, Code: strconv.Itoa(int(fsnType)), Display: "Fully specified name"}
	synonymUse = codesystem.Synonym
)

// buildTable returns the table of concepts, terms and is-a relationships.
func (l *loader) buildTable(s *System, order, position []uint32) (*table.Table, error) {
	d := &s.descriptions
	dialects := d.defaultDialects(func(refset sctid) bool {
		at := l.index.find(refset)
		return at != none && l.modules.ids[l.concepts.module[at]] != coreModule
	})
	s.tags = []string{displayLanguage}
	for number, old := range order {
		flags := codesystem.Flags(0)
		if !l.concepts.active[old] {
			flags = codesystem.FlagInactive | codesystem.FlagHasStatus
		}
		display, definition := l.addTexts(s, uint32(number), d.displayRow(uint32(number), dialects))
		l.table.AddConcept(strconv.AppendUint(nil, uint64(l.index.ids[old]), 10), display, definition, flags)
	}
	for _, e := range l.isA {
		l.table.AddParent(position[e.child], position[e.parent])
	}
	return l.table.Build(displayLanguage, true)
}

// displayLanguage is the language of displays unless another one is requested.
const displayLanguage = "en"

// addTexts adds the active descriptions of a concept as designations, except the display, and returns the display and the
// definition.
func (l *loader) addTexts(s *System, concept, displayRow uint32) (display, definition codesystem.TextRef) {
	d := &s.descriptions
	from, to := d.rows(concept)
	for row := from; row < to && d.flags[row]&isInactive == 0; row++ {
		switch {
		case row == displayRow:
			display = d.term[row]
		case d.flags[row] != isDefinition:
			use, tag := synonymUse, d.tagOf(row)
			if d.flags[row] == isFSN {
				use = fsnUse
			}
			l.table.AddDesignation(concept, tag, use, d.term[row])
			definitions.AppendUnique(&s.tags, tag)
		case definition == 0:
			definition = d.term[row]
		}
	}
	return display, definition
}

// moveOffHeap moves large arrays off the heap.
func (s *System) moveOffHeap() {
	m, d, a := new(offheap.Memory), &s.descriptions, &s.attributes
	offheap.Move(m, &d.from, &d.acceptableFrom, &a.from, &a.to, &a.byDestination, &a.source, &a.kind, &a.destination, &a.concreteSource, &a.concreteKind)
	offheap.Move(m, &s.module, &d.module, &a.group, &a.concreteGroup)
	offheap.Move(m, &s.effective, &d.effective)
	offheap.Move(m, &d.term, &a.concreteValue)
	offheap.Move(m, &d.id)
	offheap.Move(m, &d.flags)
	offheap.Move(m, &d.acceptability)
	offheap.Move(m, &d.language, (*[]uint8)(&a.texts), (*[]uint8)(&s.refsetTexts))
	for _, x := range s.refsets {
		offheap.Move(m, &x.component, &x.cells)
		offheap.Move(m, &x.module)
		offheap.Move(m, &x.effective)
		offheap.Move(m, &x.active)
	}
	offheap.ReleaseWhenCollected(s, m)
}

// SearchIndex returns the search index for a list of languages. If all texts are English, lists that change no displays share an
// index: a browser requests en-US, which must not double the memory. Texts in other dialects remain searchable.
func (s *System) SearchIndex(list string) *textindex.Index {
	languages := codesystem.ParseLanguages(list)
	key := []byte(languages.Key(s.tags)) // begins with the similarity of each tag to the first available language
	isForeign := func(tag string) bool { return !strings.HasPrefix(tag, displayLanguage) }
	if len(key) > len(s.tags) && key[0] > 0 && key[0] == slices.Max(key[:len(s.tags)]) && !slices.ContainsFunc(s.tags, isForeign) {
		list = ""
	}
	return s.Table.SearchIndex(list)
}

// concept returns the number of a concept, or none.
func (s *System) concept(id sctid) uint32 {
	c, ok := s.Locate(strconv.AppendUint(nil, uint64(id), 10))
	if !ok {
		return none
	}
	return c.Number
}

// code returns the identifier of a concept as text.
func (s *System) code(concept uint32) []byte { return s.Code(codesystem.ConceptAt(concept)) }

// term returns the preferred term of a concept.
func (s *System) term(concept uint32) []byte {
	_, display, _ := s.Concept(codesystem.ConceptAt(concept))
	return display
}
