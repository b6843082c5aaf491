package fhirxml

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object being written.
type object struct {
	*reader
	begun   bool
	seen    []string
	current element // repetitions follow each other
	count   int
	values  []byte // of a primitive, with a comma after each
	valued  bool   // whether one of them is not null
	others  []byte // ids and extensions of a primitive, with a comma after each
	other   bool   // whether one of them is not null
}

// begin starts an element, and ends the previous one if it has another name.
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

// end writes what is left of the elements with one name.
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

// list writes the values of a primitive, or their ids and extensions.
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
	// What is beside the value is written where the object will be, and then taken from there.
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

// maxBeside bounds the nesting of primitives in extensions of primitives, each of which copies what is in it.
const maxBeside = 50

// primitiveType is what a primitive has besides its value.
var primitiveType = elementType{
	name: "Element", elements: []element{{name: "extension", kind: "Extension", repeats: true}}, places: map[string]int{"extension": 0},
}

// appendPrimitive appends the value of a primitive in JSON, or null if it has none.
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
