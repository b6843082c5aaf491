package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/bitset"

// codeSet is a set of codes. Versions of a code system do not count unless byVersion is set. Concepts are bits, and only
// codes without a loaded concept are text.
type codeSet struct {
	library   *Set
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
func newCodeSet(d *Set) *codeSet {
	return &codeSet{library: d, concepts: make(map[uint32]bitset.Set)}
}

func (s *codeSet) addAll(entries []entry) {
	for _, e := range entries {
		s.add(e)
	}
}

func (s *codeSet) add(e entry) {
	if e.concept == none {
		if s.loose == nil {
			s.loose = make(map[looseCode]struct{})
		}
		s.loose[s.looseCode(e)] = struct{}{}
		return
	}
	concepts, ok := s.concepts[e.codeSystem]
	if !ok {
		concepts = bitset.New(s.library.codeSystems[e.codeSystem].concepts.Len())
		s.concepts[e.codeSystem] = concepts
	}
	concepts.Add(e.concept)
}

func (s *codeSet) has(e entry) bool {
	if e.concept != none {
		if concepts, ok := s.concepts[e.codeSystem]; ok && concepts.Has(e.concept) {
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
func (s *codeSet) hasInOtherVersion(e entry) bool {
	versions := s.library.systems[s.library.systemOf(e)].versions
	s.elsewhere += len(versions) - 1
	for _, version := range versions {
		concepts, ok := s.concepts[version]
		if !ok || e.concept != none && version == e.codeSystem {
			continue
		}
		if c, ok := s.library.codeSystems[version].concepts.Locate(s.library.code(e)); ok && concepts.Has(c.Number) {
			return true
		}
	}
	return false
}

func (s *codeSet) looseCode(e entry) looseCode {
	return looseCode{system: s.library.systemOf(e), code: string(s.library.code(e))}
}
