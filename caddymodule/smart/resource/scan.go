package resource

import (
	"bytes"
	"iter"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
)

// scan reads what is known to be valid JSON, since it is part of a text that was parsed, and so needs only find out
// where values end. In other text it finds nothing sensible, but goes no further than the end.
type scan struct {
	text []byte
	at   int
}

// Field returns the text of a member's value in an object; ok is false if there is none, or if it is no object. It is
// for parts of a parsed resource.
func Field(object []byte, name string) (value []byte, ok bool) {
	s := scan{text: object}
	for s.take('{') || s.take(',') {
		found, err := text(s.value())
		s.take(':')
		if value = s.value(); err == nil && string(found) == name {
			return value, true
		}
	}
	return nil, false
}

// Elements returns the texts of an array's elements; of any other value, the value itself. It is for parts of a parsed
// resource.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scan{text: array}
		if s.peek() != '[' {
			yield(array)
			return
		}
		for s.take('[') || s.take(',') {
			if value := s.value(); len(value) > 0 && !yield(value) {
				return
			}
		}
	}
}

// Text returns what a string says; nothing if the value is no string.
func Text(value []byte) string {
	said, _ := text(value)
	return string(said)
}

// text returns what a string says. Most have no escapes, and then it is what stands between the quotation marks.
func text(value []byte) ([]byte, error) {
	if last := len(value) - 1; last > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return value[1:last:last], nil
	}
	return rawjson.NewCursor(value).Bytes()
}

// peek goes to the next character that is no white space, and returns it.
func (s *scan) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take goes over a character if it is next.
func (s *scan) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// value goes over the next value, and returns it. In an empty array or object there is none.
func (s *scan) value() []byte {
	first := s.peek()
	start := s.at
	switch first {
	case '"':
		s.quoted()
	case '{', '[':
		s.nested()
	default:
		for s.at < len(s.text) && bytes.IndexByte([]byte(",:]} \t\r\n"), s.text[s.at]) < 0 {
			s.at++
		}
	}
	return s.text[start:s.at:s.at]
}

// quoted goes over a string.
func (s *scan) quoted() {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return
		}
	}
	s.at = len(s.text)
}

// nested goes over an object or an array.
func (s *scan) nested() {
	depth := 0
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case '"':
			s.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
		if depth == 0 {
			return
		}
	}
}
