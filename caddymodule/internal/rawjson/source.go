package rawjson

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 64

// Bytes in all eight places of a word.
const (
	ones   = 0x0101010101010101
	highs  = 0x80 * ones
	quotes = '"' * ones
	slants = '\\' * ones
	spaces = ' ' * ones
)

// source is a text of which parts are read from an offset on. It keeps nothing of what it read.
type source struct{ text []byte }

// syntaxError is returned for what is not JSON.
func (s *source) syntaxError(at int, problem string) error {
	if at >= len(s.text) {
		at, problem = len(s.text), "unexpected end"
	}
	return &Error{Offset: at, Err: fmt.Errorf("%w: %s", ErrSyntax, problem)}
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

// separate goes on behind a value: behind the closing bracket, or to what follows the comma.
func (s *source) separate(i int, closing byte) (at int, more bool, err error) {
	i = s.next(i)
	switch s.peek(i) {
	case ',':
		return s.next(i + 1), true, nil
	case closing:
		return i + 1, false, nil
	default:
		return i, false, s.syntaxError(i, "expected a comma or "+string(closing))
	}
}

// word checks that a literal is at i.
func (s *source) word(i int, literal string) (int, error) {
	end := i + len(literal)
	if end > len(s.text) || string(s.text[i:end]) != literal {
		return i, s.syntaxError(i, "expected a value")
	}
	return end, nil
}

// peek returns the byte at i, or 0 behind the end of the text, where JSON never has one.
func (s *source) peek(i int) byte {
	if i < len(s.text) {
		return s.text[i]
	}
	return 0
}

// next goes over white space.
func (s *source) next(i int) int {
	if i < len(s.text) && s.text[i] > ' ' {
		return i
	}
	return s.behindSpace(i)
}

// behindSpace is next where there is white space. Indentation is long, so it goes over eight spaces at a time.
func (s *source) behindSpace(i int) int {
	for ; ; i++ {
		if s.peek(i) == '\n' {
			i++
		}
		for w := s.eight(i); ; w = s.eight(i) {
			if w != spaces {
				i += bits.TrailingZeros64(w^spaces) / 8
				break
			}
			i += 8
		}
		if b := s.peek(i); b != '\n' && b != '\r' && b != '\t' {
			return i
		}
	}
}

// said returns what a string says whose characters go from i to end.
func (s *source) said(i, end int, escapes bool) []byte {
	if escapes {
		return s.unescape(i, end)
	}
	return s.text[i:end:end]
}

// unescape returns what the part of a string from i to end says. It has been checked.
func (s *source) unescape(i, end int) []byte {
	said := make([]byte, 0, end-i)
	for {
		plain := bytes.IndexByte(s.text[i:end], '\\')
		if plain < 0 {
			return append(said, s.text[i:end]...)
		}
		said = append(said, s.text[i:i+plain]...)
		said, i = s.appendEscaped(said, i+plain+1)
	}
}

// appendEscaped appends what the escape means whose backslash is before i.
func (s *source) appendEscaped(said []byte, i int) ([]byte, int) {
	switch b := s.text[i]; b {
	case 'u':
		r, end, _ := s.escapedRune(i + 1)
		return utf8.AppendRune(said, r), end
	case 'b':
		return append(said, '\b'), i + 1
	case 'f':
		return append(said, '\f'), i + 1
	case 'n':
		return append(said, '\n'), i + 1
	case 'r':
		return append(said, '\r'), i + 1
	case 't':
		return append(said, '\t'), i + 1
	default:
		return append(said, b), i + 1
	}
}

// escapeEnd checks the escape whose backslash is before i. Halves of a surrogate pair are valid only together.
func (s *source) escapeEnd(i int) (int, error) {
	switch s.peek(i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
		_, end, err := s.escapedRune(i + 1)
		return end, err
	default:
		return i, s.syntaxError(i, "invalid escape")
	}
}

// escapedRune reads the character whose hexadecimal digits are at i.
func (s *source) escapedRune(i int) (r rune, end int, err error) {
	first := s.hex(i)
	if !utf16.IsSurrogate(first) && first >= 0 {
		return first, i + 4, nil
	}
	if s.peek(i+4) == '\\' && s.peek(i+5) == 'u' {
		if r = utf16.DecodeRune(first, s.hex(i+6)); r != utf8.RuneError {
			return r, i + 10, nil
		}
	}
	return 0, i, s.syntaxError(i, `invalid \u escape`)
}

// hex returns the number that four hexadecimal digits at i make, or -1.
func (s *source) hex(i int) rune {
	if i+4 > len(s.text) {
		return -1
	}
	var number [2]byte
	if _, err := hex.Decode(number[:], s.text[i:i+4]); err != nil {
		return -1
	}
	return rune(number[0])<<8 | rune(number[1])
}

// plainEnd returns what is behind the string at i, if that has neither escapes nor bytes that are not ASCII, and does not
// end with the text. Otherwise it returns 0.
func plainEnd(text []byte, i int) int {
	if i >= len(text) || text[i] != '"' {
		return 0
	}
	for i++; i+8 <= len(text); i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		if found := ((w ^ quotes - ones) | (w ^ slants - ones) | (w - spaces) | w) & highs; found != 0 {
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

// specialAt finds the next byte that is special in a string: a quotation mark, a backslash or a control character. It
// also returns the bytes before that, ORed: where none of them has its highest bit set, they are ASCII.
func (s *source) specialAt(i int) (at int, all uint64) {
	for {
		w := s.eight(i)
		// It marks the first byte that is special. Those after it may be marked wrongly.
		if found := ((w ^ quotes - ones) | (w ^ slants - ones) | (w - spaces)) &^ w & highs; found != 0 {
			before := bits.TrailingZeros64(found) &^ 7
			return i + before/8, all | w&(1<<before-1)
		}
		all |= w
		i += 8
	}
}
