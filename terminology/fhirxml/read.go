package fhirxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	fhirNamespace  = "http://hl7.org/fhir"
	xhtmlNamespace = "http://www.w3.org/1999/xhtml"
)

var (
	errDirective = errors.New("a document type or another directive, which FHIR's XML does not have")
	errText      = errors.New("text where there should be an element")
	errEmpty     = errors.New("no element in it")
	errTrailing  = errors.New("more after the resource")
	errDepth     = errors.New("elements are nested too deep")
	errToken     = fmt.Errorf("a tag or a text of more than %d bytes", maxToken)
)

// AppendJSON appends a resource, given as an XML document, in JSON. It skips elements that R4 lacks. It returns an
// error if the document is not well-formed, has a document type, repeats an element that must not repeat, or has a
// value that is invalid for its type. It does not otherwise validate the resource. The JSON is at most about twice as
// long as the document.
func AppendJSON(dst, document []byte) ([]byte, error) {
	document = bytes.TrimPrefix(document, []byte("\ufeff"))
	src := &source{Reader: bytes.NewReader(document)}
	r := &reader{dec: xml.NewDecoder(src), src: src, document: document, dst: dst}
	if err := r.documentElement(); err != nil {
		line, _ := r.dec.InputPos()
		return dst, fmt.Errorf("fhirxml: line %d: %w", line, err)
	}
	return r.dst, nil
}

type reader struct {
	dec      *xml.Decoder
	src      *source
	document []byte
	at       int64 // offset of the current token
	dst      []byte
	depth    int
	beside   int // nesting of primitives in extensions of primitives
}

func (r *reader) documentElement() error {
	start, err := r.next()
	if err != nil {
		return noEOF(err)
	}
	if start == nil {
		return errEmpty
	}
	if err := r.resource(start); err != nil {
		return noEOF(err)
	}
	start, err = r.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil && start != nil:
		return errTrailing
	}
	return err
}

// noEOF converts the end of an incomplete document to an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next returns the start of the next element, or nil at the end of the enclosing element.
func (r *reader) next() (*xml.StartElement, error) {
	for {
		r.at = r.dec.InputOffset()
		token, err := r.token()
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			return &token, nil
		case xml.EndElement:
			return nil, nil
		case xml.Directive:
			return nil, errDirective
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				return nil, errText
			}
		}
	}
}

// resource reads a resource after its start element.
func (r *reader) resource(start *xml.StartElement) error {
	if start.Name.Space != fhirNamespace {
		return fmt.Errorf("the element %s is not in the namespace %s", start.Name.Local, fhirNamespace)
	}
	// Rejects a name that XML permits but that could not be written as XML again.
	if start.Name.Local != name(start.Name.Local) {
		return fmt.Errorf("%q is not the name of a resource type", start.Name.Local)
	}
	r.dst = append(r.dst, `{"resourceType":`...)
	if err := r.quote(start.Name.Local); err != nil {
		return err
	}
	t, known := types()[start.Name.Local]
	if !known {
		r.dst = append(r.dst, '}')
		return r.skip()
	}
	return r.elements(t, []string{"resourceType"})
}

func (r *reader) token() (xml.Token, error) {
	r.src.left = r.src.Len()
	return r.dec.Token()
}

// skip skips the rest of an element.
func (r *reader) skip() error {
	for depth := 1; depth > 0; {
		token, err := r.token()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			if depth++; r.depth+depth > maxDepth {
				return errDepth
			}
		case xml.EndElement:
			depth--
		case xml.Directive:
			return errDirective
		}
	}
	return nil
}

func (r *reader) complex(t *elementType, start *xml.StartElement) error {
	r.dst = append(r.dst, '{')
	var seen []string
	for _, a := range start.Attr {
		if a.Name.Space != "" || a.Name.Local != "id" && (a.Name.Local != "url" || t.name != "Extension") {
			continue
		}
		if slices.Contains(seen, a.Name.Local) { // encoding/xml accepts repeated attributes
			return fmt.Errorf("the attribute %s is there twice", a.Name.Local)
		}
		r.member(a.Name.Local, "", len(seen) > 0)
		seen = append(seen, a.Name.Local)
		if err := r.quote(a.Value); err != nil {
			return err
		}
	}
	return r.elements(t, seen)
}

// elements reads nested elements as members of an object that may already have some members, and ends the object.
func (r *reader) elements(t *elementType, seen []string) error {
	if r.depth++; r.depth > maxDepth {
		return errDepth
	}
	defer func() { r.depth-- }()
	o := object{reader: r, begun: len(seen) > 0, seen: seen}
	for {
		start, err := r.next()
		if err != nil {
			return err
		}
		if start == nil {
			o.end()
			r.dst = append(r.dst, '}')
			return nil
		}
		e, known := t.element(start.Name.Local)
		namespace := fhirNamespace
		if e.kind == "xhtml" {
			namespace = xhtmlNamespace
		}
		if !known || start.Name.Space != namespace {
			err = r.skip()
		} else if err = o.begin(e); err == nil {
			err = o.read(start)
		}
		if err != nil {
			return err
		}
	}
}

// inner reads the resource in an element.
func (r *reader) inner() error {
	start, err := r.next()
	if err != nil {
		return err
	}
	if start == nil {
		return errEmpty
	}
	if r.depth++; r.depth > maxDepth {
		return errDepth
	}
	defer func() { r.depth-- }()
	if err := r.resource(start); err != nil {
		return err
	}
	if start, err = r.next(); err == nil && start != nil {
		return errTrailing
	}
	return err
}

func (r *reader) xhtml() error {
	from := r.at
	if err := r.skip(); err != nil {
		return err
	}
	return r.quote(string(r.document[from:r.dec.InputOffset()]))
}

func (r *reader) member(name, prefix string, begun bool) {
	if begun {
		r.dst = append(r.dst, ',')
	}
	r.dst = append(append(append(append(r.dst, '"'), prefix...), name...), '"', ':')
}

func (r *reader) quote(text string) (err error) {
	r.dst, err = jsontext.AppendQuote(r.dst, text)
	return err
}

// object is the state of writing a JSON object.
type object struct {
	*reader
	begun   bool
	seen    []string
	current element // current element; repetitions are adjacent
	count   int
	values  []byte // values of a primitive, each followed by a comma
	valued  bool   // whether any value is not null
	others  []byte // IDs and extensions of a primitive, each followed by a comma
	other   bool   // whether any of others is not null
}

// begin starts an element, ending the previous one if its name differs.
func (o *object) begin(e element) error {
	if o.count > 0 && o.current.name == e.name {
		if o.count++; !e.repeats {
			return fmt.Errorf("the element %s is there twice", e.name)
		}
		return nil
	}
	o.end()
	if slices.Contains(o.seen, e.name) {
		return fmt.Errorf("the elements %s do not stand together", e.name)
	}
	o.seen = append(o.seen, e.name)
	o.current, o.count = e, 1
	return nil
}

func (o *object) read(start *xml.StartElement) error {
	switch o.current.kind {
	case "boolean", "number", "string":
		return o.primitive(start)
	}
	if o.count > 1 {
		o.dst = append(o.dst, ',')
	} else {
		o.member(o.current.name, "", o.begun)
		o.begun = true
		if o.current.repeats {
			o.dst = append(o.dst, '[')
		}
	}
	switch o.current.kind {
	case "xhtml":
		return o.xhtml()
	case "Resource":
		return o.inner()
	}
	return o.complex(types()[o.current.kind], start)
}

// end writes the remaining values of the current element.
func (o *object) end() {
	switch o.current.kind {
	case "":
		return
	case "boolean", "number", "string":
		if o.valued {
			o.list("", o.values)
		}
		if o.other {
			o.list("_", o.others)
		}
		o.values, o.others, o.valued, o.other = o.values[:0], o.others[:0], false, false
	default:
		if o.current.repeats {
			o.dst = append(o.dst, ']')
		}
	}
	o.count = 0
	o.current = element{}
}

// list writes the values of a primitive, or their IDs and extensions.
func (o *object) list(prefix string, values []byte) {
	o.member(o.current.name, prefix, o.begun)
	o.begun = true
	values = values[:len(values)-1]
	if o.current.repeats {
		o.dst = append(append(append(o.dst, '['), values...), ']')
		return
	}
	o.dst = append(o.dst, values...)
}

func (o *object) primitive(start *xml.StartElement) error {
	value, given, err := appendPrimitive(o.values, o.current, start)
	if err != nil {
		return err
	}
	o.values, o.valued = append(value, ','), o.valued || given
	// ID and extensions are first appended to the output and then moved.
	if o.beside++; o.beside > maxBeside {
		return errDepth
	}
	defer func() { o.beside-- }()
	from := len(o.dst)
	beside := &xml.StartElement{Name: start.Name, Attr: slices.DeleteFunc(start.Attr, func(a xml.Attr) bool { return a.Name.Local != "id" })}
	if err := o.complex(&primitiveType, beside); err != nil {
		return err
	}
	if string(o.dst[from:]) == "{}" {
		if !given {
			return fmt.Errorf("the element %s has no value", o.current.name)
		}
		o.others = append(o.others, "null,"...)
	} else {
		o.others, o.other = append(append(o.others, o.dst[from:]...), ','), true
	}
	o.dst = o.dst[:from]
	return nil
}

// maxBeside is the maximum nesting of primitives in extensions of primitives, because each level copies its content.
const maxBeside = 50

// primitiveType contains the elements of a primitive besides its value.
var primitiveType = elementType{
	name: "Element", elements: []element{{name: "extension", kind: "Extension", repeats: true}}, places: map[string]int{"extension": 0},
}

// appendPrimitive appends the value of a primitive in JSON, or null without a value.
func appendPrimitive(dst []byte, e element, start *xml.StartElement) (value []byte, given bool, err error) {
	i := slices.IndexFunc(start.Attr, func(a xml.Attr) bool { return a.Name.Space == "" && a.Name.Local == "value" })
	if i < 0 {
		return append(dst, "null"...), false, nil
	}
	text := start.Attr[i].Value
	switch e.kind {
	case "boolean":
		if text != "true" && text != "false" {
			return dst, false, fmt.Errorf("the value of %s is not true or false", e.name)
		}
		return append(dst, text...), true, nil
	case "number":
		n := jsontext.Value(strings.TrimPrefix(text, "+"))
		if n.Kind() != '0' || !n.IsValid() || len(bytes.TrimSpace(n)) < len(n) {
			return dst, false, fmt.Errorf("the value of %s is not a number", e.name)
		}
		return append(dst, n...), true, nil
	}
	dst, err = jsontext.AppendQuote(dst, text)
	return dst, true, err
}

// maxToken is the maximum size of a tag with attributes or of a text, in bytes. It suffices for the longest valid
// string of 4 MiB. Without a limit, attributes would use twenty times their length.
const maxToken = 5 << 20

// source is the document of a decoder. It fails within an overlong token.
type source struct {
	*bytes.Reader
	left int // remaining bytes at the start of the token
}

// ReadByte implements [io.ByteReader], which the decoder uses.
func (s *source) ReadByte() (byte, error) {
	if s.Len() > 0 && s.left-s.Len() > maxToken {
		return 0, errToken
	}
	return s.Reader.ReadByte()
}
