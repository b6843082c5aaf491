package rawjson

import (
	"math/bits"
)

// source is a text of which parts are read from an offset on. It keeps nothing of what it read.
type source struct{ text []byte }

// scanner checks what is in a text from an offset on. It knows how deep that is, and the names of the objects around it.
type scanner struct {
	source
	depth            int
	names            []name // of the objects that are open
	allowsDuplicates bool
}

// skip checks the value at i, and returns where it ends.
func (s *scanner) skip(i int) (int, error) {
	i = s.next(i)
	first := s.peek(i)
	switch first {
	case '"':
		end, _, err := s.stringEnd(i + 1)
		return end, err
	case '{', '[':
		return s.skipNested(i, first)
	case 't':
		return s.word(i, "true")
	case 'f':
		return s.word(i, "false")
	case 'n':
		return s.word(i, "null")
	default:
		if kinds[first] != Number {
			return i, s.syntaxError(i, "expected a value")
		}
		return s.numberEnd(i)
	}
}

func (s *scanner) skipNested(i int, first byte) (end int, err error) {
	if s.depth == MaxDepth {
		return i, &Error{Offset: i, Err: ErrDepth}
	}
	s.depth++
	if first == '{' {
		end, err = s.skipObject(i + 1)
	} else {
		end, err = s.skipArray(i + 1)
	}
	s.depth--
	return end, err
}

func (s *scanner) skipObject(i int) (int, error) {
	seen := s.noSkippedNames()
	at, more := s.open(i, '}')
	for more {
		value, err := s.skipName(&seen, at)
		if err != nil {
			return value, err
		}
		end := plainEnd(s.text, value)
		if end == 0 {
			if end, err = s.skip(value); err != nil {
				return end, err
			}
		}
		if at = end + 1; follows(s.text, end, ',') {
			continue
		}
		if at, more, err = s.separate(end, '}'); err != nil {
			return at, err
		}
	}
	s.forget(&seen)
	return at, nil
}

func (s *scanner) skipArray(i int) (int, error) {
	at, more := s.open(i, ']')
	for more {
		var err error
		end := plainEnd(s.text, at)
		if end == 0 {
			if end, err = s.skip(at); err != nil {
				return end, err
			}
		}
		if at = end + 1; follows(s.text, end, ',') {
			continue
		}
		if at, more, err = s.separate(end, ']'); err != nil {
			return at, err
		}
	}
	return at, nil
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
