package terminology

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// reader reads FHIR JSON as a stream of tokens. Nothing is unmarshalled: what is wanted is copied out
// of the decoder's buffer, everything else is skipped.
type reader struct {
	dec     *jsontext.Decoder
	scratch []byte
	within  string // where in a larger one this JSON stands
	short   *shortage
}

// newReader reads from src. Duplicate member names are let through, and the last one counts: watching
// for them would take memory for each object.
func newReader(src io.Reader) *reader {
	return &reader{dec: jsontext.NewDecoder(src, jsontext.AllowDuplicateNames(true))}
}

// inner returns a reader of a value that r has read.
func (r *reader) inner(value jsontext.Value) *reader {
	n := newReader(bytes.NewReader(value))
	n.short = r.shortage()
	return n
}

// shortage returns what short elements are counted by.
func (r *reader) shortage() *shortage {
	if r.short == nil {
		r.short = &shortage{most: maxShort}
	}
	return r.short
}

// atEnd reports whether nothing but whitespace is left.
func (r *reader) atEnd() bool {
	return r.dec.PeekKind() == 0 && r.dec.StackDepth() == 0 && errors.Is(r.peekError(), io.EOF)
}

// peekError returns the error for which PeekKind had no answer.
func (r *reader) peekError() error {
	_, err := r.dec.ReadToken()
	return err
}

// object calls member with the name of each member of the next value, which must be an object. The
// name is valid until member reads on; member must read or skip exactly the value.
func (r *reader) object(member func(name []byte) error) error {
	if err := r.delimiter('{'); err != nil {
		return err
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.text()
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return r.delimiter('}')
}

// array calls element before each element of the next value, which must be an array.
func (r *reader) array(element func() error) error { return r.arrayOf(shortElement, element) }

// arrayOf is array for elements that take as much memory as so many bytes of JSON.
func (r *reader) arrayOf(held int64, element func() error) error {
	if err := r.delimiter('['); err != nil {
		return err
	}
	short := r.shortage()
	for r.dec.PeekKind() != ']' {
		start := r.dec.InputOffset()
		if err := element(); err != nil {
			return err
		}
		if err := short.add(r.dec.InputOffset()-start, held); err != nil {
			return fmt.Errorf("%s: %w", r.pointer(), err)
		}
	}
	return r.delimiter(']')
}

// text returns the next value, which must be a string. It is valid until the next call.
func (r *reader) text() ([]byte, error) {
	raw, err := r.value('"')
	if err != nil {
		return nil, err
	}
	if len(raw) > maxString {
		return nil, fmt.Errorf("%s: %w", r.pointer(), &tooLargeError{what: "a string", most: maxString})
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	r.scratch, err = jsontext.AppendUnquote(r.scratch[:0], raw)
	return r.scratch, err
}

// maxString is how long a string may be, in bytes: FHIR allows 1,048,576 characters (R4 §2.24.0.1).
const maxString = 4 << 20

// string reads the next value, which must be a string, into s.
func (r *reader) string(s *string) error {
	b, err := r.text()
	if err == nil {
		*s = string(b)
	}
	return err
}

// maxName is how long the url of a definition, or its version, may be, in bytes: an answer has it beside each code.
const maxName = 8 << 10

// name reads a url or a version into s.
func (r *reader) name(s *string) error {
	if err := r.string(s); err != nil || len(*s) <= maxName {
		return err
	}
	return fmt.Errorf("%s: %w", r.pointer(), &tooLargeError{what: "a url or version", most: maxName})
}

// bool reads the next value, which must be true or false, into b.
func (r *reader) bool(b *bool) error {
	switch kind := r.dec.PeekKind(); kind {
	case 't', 'f':
		*b = kind == 't'
		return r.skip()
	default:
		return r.unexpected("true or false", kind)
	}
}

// primitive returns the next value, which must be a string, a number or a boolean, as text.
func (r *reader) primitive() ([]byte, error) {
	switch kind := r.dec.PeekKind(); kind {
	case '"':
		return r.text()
	case '0', 't', 'f':
		return r.value(kind)
	default:
		return nil, r.unexpected("a primitive value", kind)
	}
}

// isPrimitive reports whether the next value is a string, a number or a boolean.
func (r *reader) isPrimitive() bool {
	switch r.dec.PeekKind() {
	case '"', '0', 't', 'f':
		return true
	}
	return false
}

// skip passes over the next value.
func (r *reader) skip() error {
	return r.dec.SkipValue()
}

// delimiter reads the given opening or closing brace or bracket.
func (r *reader) delimiter(want jsontext.Kind) error {
	if kind := r.dec.PeekKind(); kind != want {
		return r.unexpected(kindName(want), kind)
	}
	_, err := r.dec.ReadToken()
	return err
}

// value reads the next value, which must be of the given kind.
func (r *reader) value(want jsontext.Kind) (jsontext.Value, error) {
	if kind := r.dec.PeekKind(); kind != want {
		return nil, r.unexpected(kindName(want), kind)
	}
	return r.dec.ReadValue()
}

// unexpected is the error for a value of the wrong JSON type, or the decoder's own where there is no
// value to be read.
func (r *reader) unexpected(want string, got jsontext.Kind) error {
	if got == 0 {
		err := r.peekError()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return fmt.Errorf("%s: want %s, found %s", r.pointer(), want, kindName(got))
}

// pointer says where in the JSON the reader is.
func (r *reader) pointer() string {
	if p := r.within + string(r.dec.StackPointer()); p != "" {
		return p
	}
	return "/"
}

// kindName is how a JSON kind is called in an error.
func kindName(k jsontext.Kind) string {
	switch k {
	case '{', '}':
		return "an object"
	case '[', ']':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	default:
		return "a boolean"
	}
}
