package fhirjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads FHIR JSON as a stream of tokens. It unmarshals nothing: callers copy what they want and skip the rest.
type Reader struct {
	dec     *jsontext.Decoder
	scratch []byte
	within  string // path to this value in a larger one
	short   *Shortage
}

// NewReader returns a reader of src. Of members with the same name the last one counts: to refuse duplicates, the names
// of every object would have to be kept.
func NewReader(src io.Reader) *Reader {
	return &Reader{dec: jsontext.NewDecoder(src, jsontext.AllowDuplicateNames(true))}
}

// ReaderOf returns a reader of a value.
func ReaderOf(value jsontext.Value) *Reader { return NewReader(bytes.NewReader(value)) }

// Counting makes the reader count short elements with s, and returns it.
func (r *Reader) Counting(s *Shortage) *Reader {
	r.short = s
	return r
}

// Inner returns a reader of a value that r has read.
func (r *Reader) Inner(value jsontext.Value) *Reader { return ReaderOf(value).Counting(r.Shortage()) }

// Shortage returns what the reader counts short elements with.
func (r *Reader) Shortage() *Shortage {
	if r.short == nil {
		r.short = NewShortage(MaxShort)
	}
	return r.short
}

// Offset returns how many bytes have been read.
func (r *Reader) Offset() int64 { return r.dec.InputOffset() }

// AtEnd reports whether only whitespace is left.
func (r *Reader) AtEnd() bool {
	return r.dec.PeekKind() == 0 && r.dec.StackDepth() == 0 && errors.Is(r.peekError(), io.EOF)
}

// peekError returns the error that made PeekKind return 0.
func (r *Reader) peekError() error {
	_, err := r.dec.ReadToken()
	return err
}

// Object calls member with the name of each member of the next value, an object. member must read or skip the value and
// nothing else; the name is valid until then.
func (r *Reader) Object(member func(name []byte) error) error {
	if err := r.delimiter('{'); err != nil {
		return err
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.Text()
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return r.delimiter('}')
}

// Array calls element before each element of the next value, an array.
func (r *Reader) Array(element func() error) error { return r.ArrayOf(shortElement, element) }

// ArrayOf is Array for elements that take as much memory as held bytes of JSON.
func (r *Reader) ArrayOf(held int64, element func() error) error {
	if err := r.delimiter('['); err != nil {
		return err
	}
	short := r.Shortage()
	for r.dec.PeekKind() != ']' {
		start := r.Offset()
		if err := element(); err != nil {
			return err
		}
		if err := short.Add(r.Offset()-start, held); err != nil {
			return fmt.Errorf("%s: %w", r.Pointer(), err)
		}
	}
	return r.delimiter(']')
}

// Text returns the next value, which must be a string. The bytes are valid until the next call.
func (r *Reader) Text() ([]byte, error) {
	raw, err := r.Value('"')
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxString {
		return nil, fmt.Errorf("%s: %w", r.Pointer(), &TooLargeError{What: "a string", Most: MaxString})
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	r.scratch, err = jsontext.AppendUnquote(r.scratch[:0], raw)
	return r.scratch, err
}

// MaxString bounds a string, in bytes: FHIR allows 1,048,576 characters (R4 §2.24.0.1).
const MaxString = 4 << 20

// ReadString reads the next value, which must be a string, into s.
func (r *Reader) ReadString(s *string) error {
	b, err := r.Text()
	if err == nil {
		*s = string(b)
	}
	return err
}

// MaxName bounds the url or version of a definition, in bytes: answers repeat it with each code.
const MaxName = 8 << 10

// ReadName reads a url or a version into s.
func (r *Reader) ReadName(s *string) error {
	if err := r.ReadString(s); err != nil || len(*s) <= MaxName {
		return err
	}
	return fmt.Errorf("%s: %w", r.Pointer(), &TooLargeError{What: "a url or version", Most: MaxName})
}

// ReadBool reads the next value, which must be true or false, into b.
func (r *Reader) ReadBool(b *bool) error {
	switch kind := r.dec.PeekKind(); kind {
	case 't', 'f':
		*b = kind == 't'
		return r.Skip()
	default:
		return r.unexpected("true or false", kind)
	}
}

// Primitive returns the next value, which must be a string, a number or a boolean, as text.
func (r *Reader) Primitive() ([]byte, error) {
	switch kind := r.dec.PeekKind(); kind {
	case '"':
		return r.Text()
	case '0', 't', 'f':
		return r.Value(kind)
	default:
		return nil, r.unexpected("a primitive value", kind)
	}
}

// IsPrimitive reports whether the next value is a string, a number or a boolean.
func (r *Reader) IsPrimitive() bool {
	switch r.dec.PeekKind() {
	case '"', '0', 't', 'f':
		return true
	}
	return false
}

// Skip passes over the next value.
func (r *Reader) Skip() error { return r.dec.SkipValue() }

func (r *Reader) delimiter(want jsontext.Kind) error {
	if kind := r.dec.PeekKind(); kind != want {
		return r.unexpected(kindName(want), kind)
	}
	_, err := r.dec.ReadToken()
	return err
}

// Value returns the next value, which must be of the given kind, where 0 is any. It is valid until the next call.
func (r *Reader) Value(want jsontext.Kind) (jsontext.Value, error) {
	if kind := r.dec.PeekKind(); kind != want && want != 0 {
		return nil, r.unexpected(kindName(want), kind)
	}
	return r.dec.ReadValue()
}

// CompactValue returns a copy of the next value without whitespace. It must be of the given kind, where 0 is any.
func (r *Reader) CompactValue(want jsontext.Kind) (jsontext.Value, error) {
	raw, err := r.Value(want)
	if err != nil {
		return nil, err
	}
	value := raw.Clone()
	return value, value.Compact()
}

// unexpected is the error for a value of the wrong kind, or the decoder's own if there is no value.
func (r *Reader) unexpected(want string, got jsontext.Kind) error {
	if got == 0 {
		err := r.peekError()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return fmt.Errorf("%s: want %s, found %s", r.Pointer(), want, kindName(got))
}

// Pointer returns the JSON pointer to the reader's position.
func (r *Reader) Pointer() string {
	if p := r.within + string(r.dec.StackPointer()); p != "" {
		return p
	}
	return "/"
}

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
