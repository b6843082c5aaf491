// Package fhirjson reads FHIR JSON as a stream of tokens and writes parts of it. It supports the members and extensions that
// all resources share, but no specific resource types.
//
//	reader.go      objects, arrays and primitives in order; errors with locations; memory limits
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

// Reader reads FHIR JSON as a stream of tokens. Callers copy the values they need and skip the others.
type Reader struct {
	dec      *jsontext.Decoder
	scratch  []byte
	basePath string // JSON pointer of the value within the resource that contains it
	overhead *Overhead
}

// NewReader returns a reader of src. If a member occurs more than once, the last one wins: rejecting duplicates would require
// storing the names of all members of each object.
func NewReader(src io.Reader) *Reader {
	return &Reader{dec: jsontext.NewDecoder(src, jsontext.AllowDuplicateNames(true))}
}

// NewValueReader returns a reader of a JSON value.
func NewValueReader(value jsontext.Value) *Reader { return NewReader(bytes.NewReader(value)) }

// WithOverhead makes the reader add the overhead of short elements to s, and returns the reader.
func (r *Reader) WithOverhead(s *Overhead) *Reader {
	r.overhead = s
	return r
}

// Inner returns a reader of a value that r has read. Both share their Overhead.
func (r *Reader) Inner(value jsontext.Value) *Reader {
	return NewValueReader(value).WithOverhead(r.Overhead())
}

// Overhead returns the overhead of short elements, with the default limit unless WithOverhead was called.
func (r *Reader) Overhead() *Overhead {
	if r.overhead == nil {
		r.overhead = NewOverhead(DefaultMaxOverhead)
	}
	return r.overhead
}

// Offset returns the number of bytes read.
func (r *Reader) Offset() int64 { return r.dec.InputOffset() }

// AtEnd reports whether the input contains nothing but whitespace from here.
func (r *Reader) AtEnd() bool {
	return r.dec.PeekKind() == 0 && r.dec.StackDepth() == 0 && errors.Is(r.peekError(), io.EOF)
}

// peekError returns the error that caused PeekKind to return 0.
func (r *Reader) peekError() error {
	_, err := r.dec.ReadToken()
	return err
}

// Object reads an object and calls member with each name, which is only valid until member has read or skipped the value.
func (r *Reader) Object(member func(name []byte) error) error {
	if err := r.readDelimiter('{'); err != nil {
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
	return r.readDelimiter('}')
}

// Array reads an array and calls element before each element.
func (r *Reader) Array(element func() error) error { return r.ArrayOf(minElementMemory, element) }

// ArrayOf is like Array, but for elements that each use at least memory bytes of memory, however short their JSON is.
func (r *Reader) ArrayOf(memory int64, element func() error) error {
	if err := r.readDelimiter('['); err != nil {
		return err
	}
	short := r.Overhead()
	for r.dec.PeekKind() != ']' {
		start := r.Offset()
		if err := element(); err != nil {
			return err
		}
		if err := short.Add(r.Offset()-start, memory); err != nil {
			return fmt.Errorf("%s: %w", r.Pointer(), err)
		}
	}
	return r.readDelimiter(']')
}

// Text reads a string. The returned bytes are valid only until the next call.
func (r *Reader) Text() ([]byte, error) {
	raw, err := r.Value('"')
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxString {
		return nil, fmt.Errorf("%s: %w", r.Pointer(), &TooLargeError{Subject: "a string", Max: MaxString})
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	r.scratch, err = jsontext.AppendUnquote(r.scratch[:0], raw)
	return r.scratch, err
}

// MaxString is the maximum length of a string in bytes. FHIR allows 1,048,576 characters (R4 §2.24.0.1).
const MaxString = 4 << 20

// ReadString reads a string into s.
func (r *Reader) ReadString(s *string) error {
	b, err := r.Text()
	if err == nil {
		*s = string(b)
	}
	return err
}

// MaxName is the maximum length in bytes of the URL or version of a definition. Expansions repeat them for each code.
const MaxName = 8 << 10

// ReadName reads a URL or version into s.
func (r *Reader) ReadName(s *string) error {
	if err := r.ReadString(s); err != nil || len(*s) <= MaxName {
		return err
	}
	return fmt.Errorf("%s: %w", r.Pointer(), &TooLargeError{Subject: "a url or version", Max: MaxName})
}

// ReadBool reads a boolean into b.
func (r *Reader) ReadBool(b *bool) error {
	switch kind := r.dec.PeekKind(); kind {
	case 't', 'f':
		*b = kind == 't'
		return r.Skip()
	default:
		return r.newUnexpectedError("true or false", kind)
	}
}

// Primitive reads a string, number or boolean as text.
func (r *Reader) Primitive() ([]byte, error) {
	switch kind := r.dec.PeekKind(); kind {
	case '"':
		return r.Text()
	case '0', 't', 'f':
		return r.Value(kind)
	default:
		return nil, r.newUnexpectedError("a primitive value", kind)
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

// Skip skips the next value.
func (r *Reader) Skip() error { return r.dec.SkipValue() }

func (r *Reader) readDelimiter(want jsontext.Kind) error {
	if kind := r.dec.PeekKind(); kind != want {
		return r.newUnexpectedError(kindName(want), kind)
	}
	_, err := r.dec.ReadToken()
	return err
}

// Value reads a value of the given kind (0 means any). The returned value is valid only until the next call.
func (r *Reader) Value(want jsontext.Kind) (jsontext.Value, error) {
	if kind := r.dec.PeekKind(); kind != want && want != 0 {
		return nil, r.newUnexpectedError(kindName(want), kind)
	}
	return r.dec.ReadValue()
}

// CompactValue reads a value of the given kind (0 means any) and returns a copy without whitespace.
func (r *Reader) CompactValue(want jsontext.Kind) (jsontext.Value, error) {
	raw, err := r.Value(want)
	if err != nil {
		return nil, err
	}
	value := raw.Clone()
	return value, value.Compact()
}

// newUnexpectedError returns the error for an unexpected kind of value, or the decoder's error if there is no value.
func (r *Reader) newUnexpectedError(want string, got jsontext.Kind) error {
	if got == 0 {
		err := r.peekError()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return fmt.Errorf("%s: expected %s, found %s", r.Pointer(), want, kindName(got))
}

// Pointer returns the JSON pointer to the current position.
func (r *Reader) Pointer() string {
	if p := r.basePath + string(r.dec.StackPointer()); p != "" {
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

// TooLargeError is the error for a value that exceeds its maximum size.
type TooLargeError struct {
	// Subject describes the value.
	Subject string

	// Max is the maximum size in bytes.
	Max int64
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than the limit of %s", e.Subject, FormatSize(e.Max))
}

// FormatSize formats a number of bytes.
func FormatSize(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// limitedSource is the source of a decoder. Reading fails if a value exceeds the size limit or the context is done.
type limitedSource struct {
	ctx  context.Context
	src  io.Reader
	dec  *jsontext.Decoder
	read int64
	max  int64
}

// Read implements [io.Reader].
func (v *limitedSource) Read(b []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	if v.read-v.dec.InputOffset() > v.max {
		return 0, &TooLargeError{Subject: "a value", Max: v.max}
	}
	n, err := v.src.Read(b)
	v.read += int64(n)
	return n, err
}

// NewSourceReader returns a reader of a file. It buffers at most limit bytes per value.
func NewSourceReader(ctx context.Context, src io.Reader, limit int64) *Reader {
	v := &limitedSource{ctx: ctx, src: src, max: limit}
	r := NewReader(v)
	v.dec = r.dec
	return r
}

// Overhead is the total memory that values use in excess of the length of their JSON. Without a limit, five million empty
// objects would use a hundred times their length.
type Overhead struct{ bytes, max int64 }

// NewOverhead returns an Overhead with a limit in bytes.
func NewOverhead(limit int64) *Overhead { return &Overhead{max: limit} }

// DefaultMaxOverhead is the default limit of an [Overhead] in bytes.
const DefaultMaxOverhead = 16 << 20

// minElementMemory is the minimum memory in bytes that an array element uses.
const minElementMemory = 32

// Add adds a value that is length bytes long in JSON and uses memory bytes. It returns an error if the limit is exceeded.
func (s *Overhead) Add(length, memory int64) error {
	if s.bytes += max(0, memory-length); s.bytes > s.max {
		return errors.New("too many definitions or tiny elements: they would use far more memory than their JSON")
	}
	return nil
}

// ErrNoResourceType is the error for a JSON object that is not a FHIR resource.
var ErrNoResourceType = errors.New("no resourceType: not a FHIR resource")

// ResourceType returns the type of a resource in JSON, or ErrNoResourceType.
func ResourceType(resource jsontext.Value) (kind string, err error) {
	r := NewValueReader(resource)
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

// String is a string member of an object.
type String struct {
	// Name is the name of the member.
	Name string

	// Destination receives the value of the member.
	Destination *string
}

// Strings reads the given string members of an object and skips all others.
func (r *Reader) Strings(members ...String) error {
	return r.ObjectWith(func([]byte) error { return r.Skip() }, members...)
}

// ObjectWith reads the given string members of an object and calls other with the name of each remaining member.
func (r *Reader) ObjectWith(other func(name []byte) error, members ...String) error {
	return r.Object(func(name []byte) error {
		for _, m := range members {
			if m.Name == string(name) {
				return r.ReadString(m.Destination)
			}
		}
		return other(name)
	})
}

// Member is an unparsed member of a resource.
type Member struct {
	// Name is the name of the member.
	Name string

	// Value is the compacted value of the member.
	Value jsontext.Value
}

// ReadMember reads the next value, appends a copy to list under the given name, and returns a reader of the copy.
func (r *Reader) ReadMember(name string, list *[]Member) (*Reader, error) {
	value, err := r.CompactValue(0)
	if err != nil {
		return nil, err
	}
	*list = append(*list, Member{Name: name, Value: value})
	inner := r.Inner(value)
	inner.basePath = strings.TrimSuffix(r.Pointer(), "/")
	return inner, nil
}

// Append appends the member as JSON.
func (m Member) Append(dst []byte) []byte {
	return append(append(AppendString(dst, m.Name), ':'), m.Value...)
}

// ValueText returns the value of a JSON member ("name":value).
func ValueText(member []byte) string {
	_, value, _ := strings.Cut(string(member), ":")
	return value
}

// Extension is an extension with a primitive value, or with nested extensions.
type Extension struct {
	// URL identifies the meaning of the extension.
	URL string

	// Value is value[x] as text. It is empty if value[x] is not a primitive.
	Value string

	// Parts are the nested extensions.
	Parts []Extension
}

const maxExtensionDepth = 8

// Extensions reads an array of extensions. depth is the nesting depth of the array.
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

// Part returns the value of the nested extension with the given URL, or "".
func (x *Extension) Part(name string) string {
	for _, p := range x.Parts {
		if p.URL == name {
			return p.Value
		}
	}
	return ""
}

// ExtensionBase is the URL prefix of the extensions that FHIR defines.
const ExtensionBase = "http://hl7.org/fhir/StructureDefinition/"
