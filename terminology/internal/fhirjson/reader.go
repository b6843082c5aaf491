// Package fhirjson reads FHIR JSON as a stream of tokens and writes parts of it. It knows what all resources share,
// members and extensions, but no particular type of resource.
//
//	reader.go      objects, arrays and primitives in order; errors say where; bounds on memory
//	jsonstring.go  writes strings and arrays
package fhirjson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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

// TooLargeError is returned for something larger than its bound.
type TooLargeError struct {
	// What says what is too large.
	What string

	// Most is its bound in bytes.
	Most int64
}

// Error says what is too large, and what to do.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %s, the most that is read", e.What, SizeText(e.Most))
}

// SizeText writes a number of bytes for people.
func SizeText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// valueSource is the source of a decoder. It fails when a value takes too much memory, or its context is done.
type valueSource struct {
	ctx  context.Context
	src  io.Reader
	dec  *jsontext.Decoder
	read int64
	most int64
}

// Read implements [io.Reader].
func (v *valueSource) Read(b []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	if v.read-v.dec.InputOffset() > v.most {
		return 0, &TooLargeError{What: "a value", Most: v.most}
	}
	n, err := v.src.Read(b)
	v.read += int64(n)
	return n, err
}

// NewSourceReader returns a reader of a file that holds at most most bytes of a value at once.
func NewSourceReader(ctx context.Context, src io.Reader, most int64) *Reader {
	v := &valueSource{ctx: ctx, src: src, most: most}
	r := NewReader(v)
	v.dec = r.dec
	return r
}

// Shortage adds up how much shorter values are than the memory they take. Without a bound, five million empty objects
// would take a hundred times their length.
type Shortage struct{ bytes, most int64 }

// NewShortage returns a sum that may grow to most bytes.
func NewShortage(most int64) *Shortage { return &Shortage{most: most} }

// MaxShort is the default bound of a [Shortage].
const MaxShort = 16 << 20

// shortElement is the least memory that an array element takes, in bytes.
const shortElement = 32

// Add counts a value of length bytes that takes held bytes of memory.
func (s *Shortage) Add(length, held int64) error {
	if s.bytes += max(0, held-length); s.bytes > s.most {
		return errors.New("too many definitions, or elements of a few bytes, which would take much more memory than they are long")
	}
	return nil
}

// ErrNoResourceType is returned for a JSON object that is no FHIR resource.
var ErrNoResourceType = errors.New("no resourceType: not a FHIR resource")

// ResourceType returns the type of a resource.
func ResourceType(resource jsontext.Value) (kind string, err error) {
	r := ReaderOf(resource)
	err = r.Object(func(name []byte) error {
		if string(name) == "resourceType" {
			if err := r.ReadString(&kind); err != nil {
				return err
			}
			return errFound
		}
		return r.Skip()
	})
	if errors.Is(err, errFound) {
		return kind, nil
	}
	if err == nil {
		err = ErrNoResourceType
	}
	return "", err
}

var errFound = errors.New("found")

// String is a member of an object that is a string.
type String struct {
	// Name is the name of the member.
	Name string

	// Into is where its value goes.
	Into *string
}

// Strings reads the given string members of an object, and skips all others.
func (r *Reader) Strings(members ...String) error {
	return r.ObjectWith(func([]byte) error { return r.Skip() }, members...)
}

// ObjectWith reads the given string members of an object, and calls other for the value of every other member.
func (r *Reader) ObjectWith(other func(name []byte) error, members ...String) error {
	return r.Object(func(name []byte) error {
		for _, m := range members {
			if m.Name == string(name) {
				return r.ReadString(m.Into)
			}
		}
		return other(name)
	})
}

// Member is a member of a resource as it was read.
type Member struct {
	// Name is the name of the member.
	Name string

	// Value is its value.
	Value jsontext.Value
}

// Keep copies the value of the named member, which is next, into list, and returns a reader of it.
func (r *Reader) Keep(name string, list *[]Member) (*Reader, error) {
	value, err := r.CompactValue(0)
	if err != nil {
		return nil, err
	}
	*list = append(*list, Member{Name: name, Value: value})
	inner := r.Inner(value)
	inner.within = strings.TrimSuffix(r.Pointer(), "/")
	return inner, nil
}

// Append appends a member as JSON.
func (m Member) Append(dst []byte) []byte {
	return append(append(AppendString(dst, m.Name), ':'), m.Value...)
}

// ValueText returns the value of a member in JSON, without its name.
func ValueText(member []byte) string {
	_, value, _ := strings.Cut(string(member), ":")
	return value
}

// Extension is an extension with a primitive value, or none.
type Extension struct {
	// URL says what the extension means.
	URL string

	// Value is its value[x] as text; empty if that is not primitive.
	Value string

	// Parts are the extensions within it.
	Parts []Extension
}

const maxExtensionDepth = 8

// Extensions reads an array of extensions.
func (r *Reader) Extensions(depth int) ([]Extension, error) {
	var list []Extension
	err := r.Array(func() error {
		var x Extension
		err := r.Object(func(name []byte) (err error) {
			switch {
			case string(name) == "url":
				return r.ReadString(&x.URL)
			case string(name) == "extension" && depth < maxExtensionDepth:
				x.Parts, err = r.Extensions(depth + 1)
				return err
			case bytes.HasPrefix(name, []byte("value")) && r.IsPrimitive():
				s, err := r.Primitive()
				x.Value = string(s)
				return err
			default:
				return r.Skip()
			}
		})
		list = append(list, x)
		return err
	})
	return list, err
}

// Part returns the value of the part with the given name.
func (x *Extension) Part(name string) string {
	for _, p := range x.Parts {
		if p.URL == name {
			return p.Value
		}
	}
	return ""
}

// ExtensionBase is the start of the urls of the extensions that FHIR defines.
const ExtensionBase = "http://hl7.org/fhir/StructureDefinition/"
