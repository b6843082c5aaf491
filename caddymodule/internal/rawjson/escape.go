package rawjson

import (
	"bytes"
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
)

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
