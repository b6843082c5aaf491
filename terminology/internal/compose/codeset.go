package compose

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// codeSet is a set of codes. Versions of a code system do not count unless byVersion is set. Concepts are bits, and only
// codes without a loaded concept are text.
type codeSet struct {
	library   *definitions.Set
	byVersion bool
	concepts  map[uint32]bitset.Set // by code system
	loose     map[looseCode]struct{}
	elsewhere int // how many other versions of code systems were searched
}

// looseCode is a code without a loaded concept.
type looseCode struct {
	system uint32
	code   string
}

// newCodeSet is small enough to be inlined, which keeps the set off the heap.
func newCodeSet(d *definitions.Set, byVersion bool) *codeSet {
	return &codeSet{library: d, byVersion: byVersion, concepts: make(map[uint32]bitset.Set)}
}

func (s *codeSet) addAll(entries []definitions.Entry) {
	for _, e := range entries {
		s.add(e)
	}
}

func (s *codeSet) add(e definitions.Entry) {
	if !e.IsNumbered() {
		if s.loose == nil {
			s.loose = make(map[looseCode]struct{})
		}
		s.loose[s.looseCode(e)] = struct{}{}
		return
	}
	concepts, ok := s.concepts[e.CodeSystem]
	if !ok {
		concepts = bitset.New(s.library.Systems.CodeSystems[e.CodeSystem].Concepts.Len())
		s.concepts[e.CodeSystem] = concepts
	}
	concepts.Add(e.Concept)
}

func (s *codeSet) has(e definitions.Entry) bool {
	if e.IsNumbered() {
		if concepts, ok := s.concepts[e.CodeSystem]; ok && concepts.Has(e.Concept) {
			return true
		}
	}
	if len(s.loose) > 0 {
		if _, ok := s.loose[s.looseCode(e)]; ok {
			return true
		}
	}
	return !s.byVersion && s.hasInOtherVersion(e)
}

// hasInOtherVersion looks for an entry's code in the other versions of its code system.
func (s *codeSet) hasInOtherVersion(e definitions.Entry) bool {
	versions := s.library.Systems.List[s.library.SystemOf(e)].Versions
	s.elsewhere += len(versions) - 1
	for _, version := range versions {
		concepts, ok := s.concepts[version]
		if !ok || e.IsNumbered() && version == e.CodeSystem {
			continue
		}
		if c, ok := s.library.Systems.CodeSystems[version].Concepts.Locate(s.library.Code(e)); ok && concepts.Has(c.Number) {
			return true
		}
	}
	return false
}

func (s *codeSet) looseCode(e definitions.Entry) looseCode {
	return looseCode{system: s.library.SystemOf(e), code: string(s.library.Code(e))}
}
