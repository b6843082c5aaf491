package fhirxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"

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

// AppendJSON appends a resource, given as an XML document, in JSON. It skips elements that R4 does not have. It fails
// if the document is not well-formed, has a document type, repeats an element that may not repeat, or has a value that
// its type cannot have; it does not otherwise validate the resource. The JSON is at most about twice as long as the
// document.
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
	at       int64 // where the last token begins
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

// noEOF makes the end of an incomplete document an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next returns the start of the next element, or nil at the end of the enclosing one.
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

// resource reads a resource whose element has begun.
func (r *reader) resource(start *xml.StartElement) error {
	if start.Name.Space != fhirNamespace {
		return fmt.Errorf("the element %s is not in the namespace %s", start.Name.Local, fhirNamespace)
	}
	// A name that XML allows but no type has could not be written as it was read.
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

// elements reads nested elements as the members of an object, some of which have been written, and ends the object.
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
