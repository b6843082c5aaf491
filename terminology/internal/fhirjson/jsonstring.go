package fhirjson

import (
	"encoding/hex"
	"unicode/utf8"
)

// AppendMember appends a comma and a string member. It appends nothing if the string is empty.
func AppendMember[text string | []byte](dst []byte, name string, value text) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = append(append(dst, ',', '"'), name...)
	return AppendString(append(dst, '"', ':'), value)
}

// AppendString appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString[text string | []byte](dst []byte, s text) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		width := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, width = utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))])); r != utf8.RuneError || width > 1 {
				i += width
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		i += width
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c >= utf8.RuneSelf:
		return append(dst, "\ufffd"...)
	case c == '\n':
		return append(dst, `\n`...)
	case c == '\r':
		return append(dst, `\r`...)
	case c == '\t':
		return append(dst, `\t`...)
	default:
		return hex.AppendEncode(append(dst, `\u00`...), []byte{c})
	}
}

// Array writes an array member. It writes nothing if there are no elements, because FHIR's JSON does not allow empty arrays.
type Array struct {
	// Name is the name of the member.
	Name string

	started bool
}

// IsEmpty reports whether no element has been appended.
func (x *Array) IsEmpty() bool { return !x.started }

// Next appends the text that precedes the next element: the start of the member or a comma.
func (x *Array) Next(dst []byte) []byte {
	if x.started {
		return append(dst, ',')
	}
	x.started = true
	dst = append(append(dst, ',', '"'), x.Name...)
	return append(dst, '"', ':', '[')
}

// End appends the closing bracket if there are elements.
func (x *Array) End(dst []byte) []byte {
	if !x.started {
		return dst
	}
	return append(dst, ']')
}
