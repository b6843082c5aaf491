package rawjson

import (
	"encoding/binary"
	"fmt"
	"math/bits"
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

// open goes on behind an opening bracket: behind the closing one, if that is next, or to what is first in between.
func (s *source) open(i int, closing byte) (at int, more bool) {
	i = s.next(i)
	if s.peek(i) == closing {
		return i + 1, false
	}
	return i, true
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

// follows reports whether a character is at i, and no white space behind it.
func follows(text []byte, i int, character byte) bool {
	return i+1 < len(text) && text[i] == character && text[i+1] > ' '
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
