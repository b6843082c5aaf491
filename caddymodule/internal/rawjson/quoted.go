package rawjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Bytes in all eight places of a word.
const (
	ones   = 0x0101010101010101
	highs  = 0x80 * ones
	quotes = '"' * ones
	slants = '\\' * ones
	spaces = ' ' * ones
)

// special marks the first byte in a word that is a quotation mark, a backslash or a control character. Bytes after it
// may be marked wrongly.
func special(w uint64) uint64 {
	return ((w ^ quotes - ones) | (w ^ slants - ones) | (w - spaces)) &^ w & highs
}

// unusual is special that marks bytes that are not ASCII, too.
func unusual(w uint64) uint64 {
	return ((w ^ quotes - ones) | (w ^ slants - ones) | (w - spaces) | w) & highs
}

// eight returns the eight bytes at i, with 0 for those behind the end of the text.
func (s *source) eight(i int) uint64 {
	if i+8 <= len(s.text) {
		return binary.LittleEndian.Uint64(s.text[i:])
	}
	var last [8]byte
	copy(last[:], s.text[min(i, len(s.text)):])
	return binary.LittleEndian.Uint64(last[:])
}

// plainEnd returns what is behind the string at i, if that has neither escapes nor bytes that are not ASCII, and does not
// end with the text. Otherwise it returns 0.
func plainEnd(text []byte, i int) int {
	if i >= len(text) || text[i] != '"' {
		return 0
	}
	for i++; i+8 <= len(text); i += 8 {
		if found := unusual(binary.LittleEndian.Uint64(text[i:])); found != 0 {
			if i += bits.TrailingZeros64(found) / 8; text[i] == '"' {
				return i + 1
			}
			return 0
		}
	}
	return 0
}

// stringEnd checks the string whose first character is at i. It returns what is behind the quotation mark that ends it,
// and whether it has escapes.
func (s *source) stringEnd(i int) (end int, escapes bool, err error) {
	start, all := i, uint64(0)
	for {
		var read uint64
		i, read = s.specialAt(i)
		all |= read
		switch s.peek(i) {
		case '"':
			if all&highs != 0 && !utf8.Valid(s.text[start:i]) {
				return i, escapes, s.syntaxError(start, "string is not UTF-8")
			}
			return i + 1, escapes, nil
		case '\\':
			escapes = true
			if i, err = s.escapeEnd(i + 1); err != nil {
				return i, escapes, err
			}
		default:
			return i, escapes, s.syntaxError(i, "control character in a string")
		}
	}
}

// specialAt finds the next byte that is special in a string. It also returns the bytes before that, ORed: where none of
// them has its highest bit set, they are ASCII.
func (s *source) specialAt(i int) (at int, all uint64) {
	for {
		w := s.eight(i)
		if found := special(w); found != 0 {
			before := bits.TrailingZeros64(found) &^ 7
			return i + before/8, all | w&(1<<before-1)
		}
		all |= w
		i += 8
	}
}
