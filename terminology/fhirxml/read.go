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
	errDirective = errors.New("document type declarations and other directives are invalid in FHIR XML")
	errText      = errors.New("unexpected text between elements")
	errEmpty     = errors.New("no resource element found")
	errTrailing  = errors.New("unexpected content after the resource")
	errDepth     = errors.New("elements are nested too deeply")
	errToken     = fmt.Errorf("a tag or text is longer than %d bytes", maxToken)
)

// AppendJSON converts document, a resource in XML, to JSON and appends it. It skips elements that R4 lacks. It returns an error
// if the document is not well-formed, has a document type, repeats an element that must not repeat, or has a value that is
// invalid for its type. It does not validate anything else. The JSON is at most about twice as long as the document.
func AppendJSON(dst, document []byte) ([]byte, error) {
	document = bytes.TrimPrefix(document, []byte("\ufeff"))
	src := &source{Reader: bytes.NewReader(document)}
	r := &reader{dec: xml.NewDecoder(src), src: src, document: document, dst: dst}
	if err := r.readDocumentElement(); err != nil {
		line, _ := r.dec.InputPos()
		return dst, fmt.Errorf("fhirxml: line %d: %w", line, err)
	}
	return r.dst, nil
}

type reader struct {
	dec            *xml.Decoder
	src            *source
	document       []byte
	offset         int64 // offset of the current token in bytes
	dst            []byte
	depth          int
	primitiveDepth int // nesting depth of primitives in extensions of primitives
}

func (r *reader) readDocumentElement() error {
	start, err := r.next()
	if err != nil {
		return unexpectedEOF(err)
	}
	if start == nil {
		return errEmpty
	}
	if err := r.readResource(start); err != nil {
		return unexpectedEOF(err)
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

// unexpectedEOF replaces io.EOF, which means that the document is incomplete, with io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next returns the start of the next element, or nil at the end of the enclosing element.
func (r *reader) next() (*xml.StartElement, error) {
	for {
		r.offset = r.dec.InputOffset()
		token, err := r.nextToken()
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

// readResource reads a resource after its start element has been read.
func (r *reader) readResource(start *xml.StartElement) error {
	if start.Name.Space != fhirNamespace {
		return fmt.Errorf("the element %s is not in the namespace %s", start.Name.Local, fhirNamespace)
	}
	// Reject names that are valid in XML but could not be written as XML again.
	if start.Name.Local != elementName(start.Name.Local) {
		return fmt.Errorf("%q is not a resource type", start.Name.Local)
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
	return r.readElements(t, []string{"resourceType"})
}

func (r *reader) nextToken() (xml.Token, error) {
	r.src.remaining = r.src.Len()
	return r.dec.Token()
}

// skip skips the content and the end of an element.
func (r *reader) skip() error {
	for depth := 1; depth > 0; {
		token, err := r.nextToken()
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

func (r *reader) readComplex(t *elementType, start *xml.StartElement) error {
	r.dst = append(r.dst, '{')
	var seen []string
	for _, a := range start.Attr {
		if a.Name.Space != "" || a.Name.Local != "id" && (a.Name.Local != "url" || t.name != "Extension") {
			continue
		}
		if slices.Contains(seen, a.Name.Local) { // encoding/xml allows repeated attributes
			return fmt.Errorf("duplicate attribute %s", a.Name.Local)
		}
		r.writeMember(a.Name.Local, "", len(seen) > 0)
		seen = append(seen, a.Name.Local)
		if err := r.quote(a.Value); err != nil {
			return err
		}
	}
	return r.readElements(t, seen)
}

// readElements reads nested elements as members of a JSON object and ends the object. seen contains the names of members that
// the object already has.
func (r *reader) readElements(t *elementType, seen []string) error {
	if r.depth++; r.depth > maxDepth {
		return errDepth
	}
	defer func() { r.depth-- }()
	o := object{reader: r, started: len(seen) > 0, seen: seen}
	for {
		start, err := r.next()
		if err != nil {
			return err
		}
		if start == nil {
			o.endElement()
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
		} else if err = o.beginElement(e); err == nil {
			err = o.readElement(start)
		}
		if err != nil {
			return err
		}
	}
}

// readInnerXML reads the resource that an element contains.
func (r *reader) readInnerXML() error {
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
	if err := r.readResource(start); err != nil {
		return err
	}
	if start, err = r.next(); err == nil && start != nil {
		return errTrailing
	}
	return err
}

func (r *reader) readXHTML() error {
	from := r.offset
	if err := r.skip(); err != nil {
		return err
	}
	return r.quote(string(r.document[from:r.dec.InputOffset()]))
}

func (r *reader) writeMember(name, prefix string, started bool) {
	if started {
		r.dst = append(r.dst, ',')
	}
	r.dst = append(append(append(append(r.dst, '"'), prefix...), name...), '"', ':')
}

func (r *reader) quote(text string) (err error) {
	r.dst, err = jsontext.AppendQuote(r.dst, text)
	return err
}

// object holds the state of writing one JSON object.
type object struct {
	*reader
	started            bool
	seen               []string
	current            element // repetitions of an element are adjacent
	repetitions        int
	values             []byte // values of a primitive, each followed by a comma
	hasValue           bool   // any value is not null
	idsAndExtensions   []byte // IDs and extensions of a primitive, each followed by a comma
	hasIDsOrExtensions bool   // any of idsAndExtensions is not null
}

// beginElement begins an element, or repeats the current one. It first ends a current element with another name.
func (o *object) beginElement(e element) error {
	if o.repetitions > 0 && o.current.name == e.name {
		if o.repetitions++; !e.repeats {
			return fmt.Errorf("duplicate element %s", e.name)
		}
		return nil
	}
	o.endElement()
	if slices.Contains(o.seen, e.name) {
		return fmt.Errorf("the elements %s are not adjacent", e.name)
	}
	o.seen = append(o.seen, e.name)
	o.current, o.repetitions = e, 1
	return nil
}

func (o *object) readElement(start *xml.StartElement) error {
	switch o.current.kind {
	case "boolean", "number", "string":
		return o.readPrimitive(start)
	}
	if o.repetitions > 1 {
		o.dst = append(o.dst, ',')
	} else {
		o.writeMember(o.current.name, "", o.started)
		o.started = true
		if o.current.repeats {
			o.dst = append(o.dst, '[')
		}
	}
	switch o.current.kind {
	case "xhtml":
		return o.readXHTML()
	case "Resource":
		return o.readInnerXML()
	}
	return o.readComplex(types()[o.current.kind], start)
}

// endElement writes what is pending for the current element.
func (o *object) endElement() {
	switch o.current.kind {
	case "":
		return
	case "boolean", "number", "string":
		if o.hasValue {
			o.writeList("", o.values)
		}
		if o.hasIDsOrExtensions {
			o.writeList("_", o.idsAndExtensions)
		}
		o.values, o.idsAndExtensions, o.hasValue, o.hasIDsOrExtensions = o.values[:0], o.idsAndExtensions[:0], false, false
	default:
		if o.current.repeats {
			o.dst = append(o.dst, ']')
		}
	}
	o.repetitions = 0
	o.current = element{}
}

// writeList writes the values of a primitive, or their IDs and extensions.
func (o *object) writeList(prefix string, values []byte) {
	o.writeMember(o.current.name, prefix, o.started)
	o.started = true
	values = values[:len(values)-1]
	if o.current.repeats {
		o.dst = append(append(append(o.dst, '['), values...), ']')
		return
	}
	o.dst = append(o.dst, values...)
}

func (o *object) readPrimitive(start *xml.StartElement) error {
	value, hasValue, err := appendPrimitive(o.values, o.current, start)
	if err != nil {
		return err
	}
	o.values, o.hasValue = append(value, ','), o.hasValue || hasValue
	// Append the ID and extensions to the output first, then move them.
	if o.primitiveDepth++; o.primitiveDepth > maxPrimitiveDepth {
		return errDepth
	}
	defer func() { o.primitiveDepth-- }()
	from := len(o.dst)
	nested := &xml.StartElement{Name: start.Name, Attr: slices.DeleteFunc(start.Attr, func(a xml.Attr) bool { return a.Name.Local != "id" })}
	if err := o.readComplex(&primitiveType, nested); err != nil {
		return err
	}
	if string(o.dst[from:]) == "{}" {
		if !hasValue {
			return fmt.Errorf("the element %s has no value", o.current.name)
		}
		o.idsAndExtensions = append(o.idsAndExtensions, "null,"...)
	} else {
		o.idsAndExtensions, o.hasIDsOrExtensions = append(append(o.idsAndExtensions, o.dst[from:]...), ','), true
	}
	o.dst = o.dst[:from]
	return nil
}

// maxPrimitiveDepth limits the nesting of primitives in extensions of primitives: each level copies its content.
const maxPrimitiveDepth = 50

// primitiveType contains the elements that a primitive may have in addition to its value.
var primitiveType = elementType{
	name: "Element", elements: []element{{name: "extension", kind: "Extension", repeats: true}}, indexes: map[string]int{"extension": 0},
}

// appendPrimitive appends the value of a primitive as JSON, or null if it has none.
func appendPrimitive(dst []byte, e element, start *xml.StartElement) (value []byte, hasValue bool, err error) {
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

// maxToken is the maximum size of a tag, including attributes, or of a text, in bytes. It is sufficient for the longest valid
// string (4 MiB). Without a limit, attributes would need twenty times their length in memory.
const maxToken = 5 << 20

// source is the document that a decoder reads. It returns an error within a token that is too long.
type source struct {
	*bytes.Reader
	remaining int // unread bytes of the document at the start of the token
}

// ReadByte implements [io.ByteReader]; the decoder reads only with this method.
func (s *source) ReadByte() (byte, error) {
	if s.Len() > 0 && s.remaining-s.Len() > maxToken {
		return 0, errToken
	}
	return s.Reader.ReadByte()
}
