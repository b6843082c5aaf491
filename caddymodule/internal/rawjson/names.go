package rawjson

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// fewNames is how many names of an object are kept in a list. Those of larger objects go into a map, so that time stays
// in proportion to the text.
const fewNames = 32

// name is a name that an object has had. It has no pointers, so that names cost the garbage collector nothing.
type name struct {
	start, end int    // in the text, without the quotation marks
	sum        uint64 // of what it says: tells most names apart
}

// nameSet is the names of one object: those in scanner.names from an index on, or many.
type nameSet struct {
	from, full int    // full is the length of scanner.names at which there are too many for it
	bits       uint64 // one for each name, by its sum: a name whose bit is not there is new
	many       map[string]struct{}
}

// noSkippedNames is noNames for an object that is skipped.
func (s *scanner) noSkippedNames() nameSet {
	if s.allowsDuplicates {
		return nameSet{from: len(s.names)}
	}
	return s.noNames()
}

// noNames is the names of an object that is about to be read.
func (s *scanner) noNames() nameSet {
	from := len(s.names)
	if cap(s.names)-from < fewNames {
		s.names = slices.Grow(s.names, 2*fewNames)
	}
	return nameSet{from: from, full: from + fewNames - 1}
}

// forget drops the names of an object that has been read.
func (s *scanner) forget(seen *nameSet) { s.names = s.names[:seen.from] }

// skipName goes over the name at i to its value.
func (s *scanner) skipName(seen *nameSet, i int) (value int, err error) {
	end := plainEnd(s.source.text, i)
	switch {
	case end == 0:
		end, _, err = s.unusualName(seen, i, !s.allowsDuplicates)
	case !s.allowsDuplicates && !s.isNew(seen, i+1, end-1):
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	if err != nil {
		return end, err
	}
	return s.source.colon(end)
}

// newName reads the name at i, which the object must not have had, and goes on to its value.
func (s *scanner) newName(seen *nameSet, i int) (text []byte, value int, err error) {
	end, escapes := plainEnd(s.source.text, i), false
	switch {
	case end == 0:
		end, escapes, err = s.unusualName(seen, i, true)
	case !s.isNew(seen, i+1, end-1):
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	if err != nil {
		return nil, end, err
	}
	value, err = s.source.colon(end)
	return s.source.said(i+1, end-1, escapes), value, err
}

// unusualName goes over a name that may have escapes, or be none.
func (s *scanner) unusualName(seen *nameSet, i int, isNew bool) (end int, escapes bool, err error) {
	if s.source.peek(i) != '"' {
		return i, false, s.source.syntaxError(i, "expected a name in quotation marks")
	}
	end, escapes, err = s.source.stringEnd(i + 1)
	if err == nil && isNew && !s.addEscaped(seen, i+1, end-1, escapes) {
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	return end, escapes, err
}

// colon goes over the colon behind a name.
func (s *source) colon(i int) (value int, err error) {
	if follows(s.text, i, ':') {
		return i + 1, nil
	}
	if i = s.next(i); s.peek(i) != ':' {
		return i, s.syntaxError(i, "expected a colon")
	}
	return s.next(i + 1), nil
}

// isNew adds a name without escapes, and reports whether it is new.
func (s *scanner) isNew(seen *nameSet, start, end int) bool {
	text := s.source.text[start:end]
	n := name{start, end, sumOf(text)}
	if seen.bits&n.bit() != 0 || len(s.names) >= seen.full {
		return s.add(seen, n, text)
	}
	seen.bits |= n.bit()
	s.names = append(s.names, n)
	return true
}

// addEscaped is isNew for a name that may have escapes.
func (s *scanner) addEscaped(seen *nameSet, start, end int, escapes bool) bool {
	said := s.source.said(start, end, escapes)
	return s.add(seen, name{start, end, sumOf(said)}, said)
}

// add adds a name that says text, and reports whether it is new.
func (s *scanner) add(seen *nameSet, n name, text []byte) bool {
	if seen.many != nil {
		_, known := seen.many[string(text)]
		seen.many[string(text)] = struct{}{}
		return !known
	}
	for _, other := range s.names[seen.from:] {
		if other.sum == n.sum && bytes.Equal(s.nameAt(other), text) {
			return false
		}
	}
	seen.bits |= n.bit()
	if s.names = append(s.names, n); len(s.names) > seen.full {
		s.manyNames(seen)
	}
	return true
}

// nameAt is what a name says.
func (s *scanner) nameAt(n name) []byte {
	return s.source.said(n.start, n.end, bytes.IndexByte(s.source.text[n.start:n.end], '\\') >= 0)
}

// manyNames moves on to a map.
func (s *scanner) manyNames(seen *nameSet) {
	seen.many = make(map[string]struct{}, 2*fewNames)
	for _, n := range s.names[seen.from:] {
		seen.many[string(s.nameAt(n))] = struct{}{}
	}
	seen.full = 0
}

// bit is one of 64, as the highest bits of the sum say.
func (n name) bit() uint64 { return 1 << (n.sum >> 58) }

// sumOf returns a number made of the first and the last bytes of a name, and of its length.
func sumOf(text []byte) uint64 {
	var sum uint64
	switch n := len(text); {
	case n >= 8:
		sum = binary.LittleEndian.Uint64(text) + 31*binary.LittleEndian.Uint64(text[n-8:])
	case n >= 4:
		sum = uint64(binary.LittleEndian.Uint32(text)) | uint64(binary.LittleEndian.Uint32(text[n-4:]))<<32
	case n > 0:
		sum = uint64(text[0]) | uint64(text[n/2])<<8 | uint64(text[n-1])<<16
	}
	const odd = 0x9e3779b97f4a7c15 // 2⁶⁴ divided by the golden ratio: the highest bits depend on all others
	return (sum + uint64(len(text))) * odd
}

// scanner checks what is in a text from an offset on. It knows how deep that is, and the names of the objects around it.
type scanner struct {
	source           source
	depth            int
	names            []name // of the objects that are open
	allowsDuplicates bool
}
