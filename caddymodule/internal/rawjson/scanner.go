package rawjson

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// scanner checks what is in a text from an offset on. It knows how deep that is, and the names of the objects around it.
type scanner struct {
	source           source
	depth            int
	names            []name // of the objects that are open
	allowsDuplicates bool
}

// skip checks the value at i, and returns where it ends.
func (s *scanner) skip(i int) (int, error) {
	i = s.source.next(i)
	first := s.source.peek(i)
	switch first {
	case '"':
		end, _, err := s.source.stringEnd(i + 1)
		return end, err
	case '{', '[':
		if s.depth == MaxDepth {
			return i, &Error{Offset: i, Err: ErrDepth}
		}
		s.depth++
		end, err := s.skipNested(i+1, first+2) // as far behind are the closing ones in ASCII
		s.depth--
		return end, err
	case 't':
		return s.source.word(i, "true")
	case 'f':
		return s.source.word(i, "false")
	case 'n':
		return s.source.word(i, "null")
	default:
		if kinds[first] != Number {
			return i, s.source.syntaxError(i, "expected a value")
		}
		return s.source.numberEnd(i)
	}
}

// skipNested checks the object or array that is open before i, and returns what is behind the closing bracket.
func (s *scanner) skipNested(i int, closing byte) (int, error) {
	isObject, kept := closing == '}', closing == '}' && !s.allowsDuplicates
	seen := s.noNames(kept)
	at := s.source.next(i)
	if s.source.peek(at) == closing {
		return at + 1, nil
	}
	for more := true; more; {
		var err error
		if isObject {
			if _, _, at, err = s.name(&seen, at, kept); err != nil {
				return at, err
			}
		}
		end := plainEnd(s.source.text, at)
		if end == 0 {
			if end, err = s.skip(at); err != nil {
				return end, err
			}
		}
		if s.source.peek(end) == ',' {
			at = s.source.next(end + 1)
			continue
		}
		if at, more, err = s.source.separate(end, closing); err != nil {
			return at, err
		}
	}
	s.names = s.names[:seen.from]
	return at, nil
}

// numberEnd checks the number at i, and returns where it ends.
func (s *source) numberEnd(i int) (int, error) {
	if s.peek(i) == '-' {
		i++
	}
	end, err := s.digitsEnd(i)
	if err != nil {
		return end, err
	}
	if s.text[i] == '0' && end > i+1 {
		return i, s.syntaxError(i, "leading zero in a number")
	}
	if s.peek(end) == '.' {
		if end, err = s.digitsEnd(end + 1); err != nil {
			return end, err
		}
	}
	if s.peek(end)|0x20 != 'e' {
		return end, nil
	}
	if b := s.peek(end + 1); b == '+' || b == '-' {
		end++
	}
	return s.digitsEnd(end + 1)
}

// digitsEnd returns the end of the digits at i, of which there must be one at least.
func (s *source) digitsEnd(i int) (int, error) {
	start := i
	for i < len(s.text) && '0' <= s.text[i] && s.text[i] <= '9' {
		i++
	}
	if i == start {
		return i, s.syntaxError(i, "expected a digit")
	}
	return i, nil
}

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
	bits       uint64 // one for each name, as the highest of its sum say: a name whose bit is not there is new
	many       map[string]struct{}
}

// noNames is the names of an object that is about to be read, if they are to be kept.
func (s *scanner) noNames(kept bool) nameSet {
	from := len(s.names)
	if !kept {
		return nameSet{from: from}
	}
	if cap(s.names)-from < fewNames {
		s.names = slices.Grow(s.names, 2*fewNames)
	}
	return nameSet{from: from, full: from + fewNames - 1}
}

// name goes over the name at i and the colon to its value. Of one that is to be kept, the object must not have had it.
func (s *scanner) name(seen *nameSet, i int, kept bool) (end int, escapes bool, value int, err error) {
	if end = plainEnd(s.source.text, i); end == 0 {
		end, escapes, err = s.unusualName(seen, i, kept)
	} else if kept && !s.add(seen, i+1, end-1, s.source.text[i+1:end-1]) {
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	if err != nil {
		return end, false, end, err
	}
	if value = s.source.next(end); s.source.peek(value) != ':' {
		return value, false, value, s.source.syntaxError(value, "expected a colon")
	}
	return end, escapes, s.source.next(value + 1), nil
}

// unusualName goes over a name that may have escapes, or be none.
func (s *scanner) unusualName(seen *nameSet, i int, kept bool) (end int, escapes bool, err error) {
	if s.source.peek(i) != '"' {
		return i, false, s.source.syntaxError(i, "expected a name in quotation marks")
	}
	end, escapes, err = s.source.stringEnd(i + 1)
	if err != nil || !kept {
		return end, escapes, err
	}
	if !s.add(seen, i+1, end-1, s.source.said(i+1, end-1, escapes)) {
		err = &Error{Offset: i, Err: ErrDuplicate}
	}
	return end, escapes, err
}

// add adds the name from start to end, which says text, and reports whether it is new. Where there are many, it moves on
// to a map.
func (s *scanner) add(seen *nameSet, start, end int, text []byte) bool {
	n := name{start, end, sumOf(text)}
	bit := uint64(1) << (n.sum >> 58)
	if seen.bits&bit == 0 && len(s.names) < seen.full {
		seen.bits |= bit
		s.names = append(s.names, n)
		return true
	}
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
	if s.names = append(s.names, n); len(s.names) <= seen.full {
		return true
	}
	seen.many, seen.full = make(map[string]struct{}, 2*fewNames), 0
	for _, n := range s.names[seen.from:] {
		seen.many[string(s.nameAt(n))] = struct{}{}
	}
	return true
}

// nameAt is what a name says.
func (s *scanner) nameAt(n name) []byte {
	return s.source.said(n.start, n.end, bytes.IndexByte(s.source.text[n.start:n.end], '\\') >= 0)
}

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
