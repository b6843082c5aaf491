package snomed

import (
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// snapshot contains the components of a version of an edition. Concepts, terms and the is-a hierarchy are in the table. Its arrays
// contain no pointers, and large ones are off the heap.
type snapshot struct {
	table   *table.Table
	edition edition

	active, defined bitset.Set // by concept
	module          []uint16   // by concept: index in modules
	effective       []date     // by concept
	modules         []uint64   // identifiers of modules

	descriptions descriptions
	tags         []string // languages of displays and designations; the first one is displayLanguage
	attributes   attributes
	refsets      map[sctid]*refset // also identifier schemes
	refsetTexts  codesystem.Texts
}

// attributes are the active inferred relationships except is-a.
type attributes struct {
	rows ecl.Relationships

	concreteSource, concreteKind []uint32 // sorted by source
	concreteGroup                []uint16
	concreteValue                []codesystem.TextRef // in texts
	texts                        codesystem.Texts
	kinds                        []uint32 // attribute types, sorted
}

// rowsOf returns the rows with a source.
func (a *attributes) rowsOf(source uint32) (from, to uint32) {
	return a.rows.From[source], a.rows.From[source+1]
}

// concreteRowsOf returns the rows of concrete values with a source.
func (a *attributes) concreteRowsOf(source uint32) (from, to int) {
	return findOwner(a.concreteSource, source)
}

// concept returns the number of a concept, or none.
func (s *snapshot) concept(id sctid) uint32 {
	c, ok := s.table.Locate(strconv.AppendUint(nil, uint64(id), 10))
	if !ok {
		return none
	}
	return c.Number
}

// code returns the identifier of a concept as text.
func (s *snapshot) code(concept uint32) []byte { return s.table.Code(codesystem.ConceptAt(concept)) }

// term returns the preferred term of a concept.
func (s *snapshot) term(concept uint32) []byte {
	_, display, _ := s.table.Concept(codesystem.ConceptAt(concept))
	return display
}

// appendReference appends the identifier of a concept, with or without its preferred term.
func (s *snapshot) appendReference(dst []byte, concept uint32, terms bool) []byte {
	if dst = append(dst, s.code(concept)...); terms {
		dst = append(append(append(dst, '|'), s.term(concept)...), '|')
	}
	return dst
}

// refset returns the reference set with an identifier, or nil.
func (s *snapshot) refset(id string) *refset {
	number, _ := parseSCTID([]byte(id))
	if x := s.refsets[number]; x != nil && !x.isScheme() {
		return x
	}
	return nil
}

// cellText returns a cell of a reference set as text.
func (s *snapshot) cellText(cell uint32, kind byte) []byte {
	switch {
	case cell&textCell != 0:
		return s.refsetTexts.At(codesystem.TextRef(cell &^ textCell))
	case kind == 'i':
		return strconv.AppendUint(nil, uint64(cell), 10)
	}
	return s.code(cell)
}

// withRefsets returns the concepts that are reference sets with rows.
func (s *snapshot) withRefsets() bitset.Set {
	set := bitset.New(s.table.Len())
	for id, x := range s.refsets {
		if concept := s.concept(id); concept != none && !x.isScheme() {
			set.Add(concept)
		}
	}
	return set
}

// complement returns the concepts that are not in a set.
func (s *snapshot) complement(set bitset.Set) bitset.Set {
	rest := bitset.New(s.table.Len())
	for concept := range uint32(s.table.Len()) {
		if !set.Has(concept) {
			rest.Add(concept)
		}
	}
	return rest
}

// climb calls visit once with each of the concepts. If visit returns true, it continues with the parents of the concept. Unlike
// [table.Table.Above], it does not allocate a set of all concepts.
func (s *snapshot) climb(concepts []uint32, visit func(concept uint32) bool) {
	pending, seen := slices.Clone(concepts), make(map[uint32]bool)
	for len(pending) > 0 {
		next := pending[len(pending)-1]
		if pending = pending[:len(pending)-1]; !seen[next] {
			if seen[next] = true; visit(next) {
				pending = append(pending, s.table.Parents(next)...)
			}
		}
	}
}

// moveOffHeap moves large arrays off the heap.
func (s *snapshot) moveOffHeap() {
	m, d, a, r := new(offheap.Memory), &s.descriptions, &s.attributes, &s.attributes.rows
	offheap.Move(m, &d.from, &d.acceptableFrom, &r.From, &r.To, &r.ByDestination, &r.Source, &r.Type, &r.Destination, &a.concreteSource, &a.concreteKind)
	offheap.Move(m, &s.module, &d.module, &r.Group, &a.concreteGroup)
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
