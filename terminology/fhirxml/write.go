package fhirxml

import (
	"bytes"
	"encoding/xml"
	"strings"
)

// Append appends a resource, which is given in JSON, as an XML document. It fails if the JSON is broken, or
// is no resource; what is in it is not checked otherwise.
func Append(dst, resource []byte) ([]byte, error) {
	n, err := parse(resource)
	if err != nil {
		return dst, err
	}
	w := writer{Buffer: bytes.NewBuffer(dst)}
	w.WriteString(xml.Header)
	w.resource(n, ` xmlns="http://hl7.org/fhir"`)
	return w.Bytes(), nil
}

// writer writes XML.
type writer struct{ *bytes.Buffer }

// resource writes a resource as the element of its type.
func (w writer) resource(n *node, attributes string) {
	kind := name(n.member("resourceType").text)
	t := types()[kind]
	w.WriteString("<" + kind + attributes + ">")
	w.members(t, t.sorted(n.members), n)
	w.WriteString("</" + kind + ">")
}

// members writes elements. A primitive's id and extensions are in the member with _ before its name.
func (w writer) members(t *elementType, list []member, of *node) {
	for _, m := range list {
		base, isSibling := strings.CutPrefix(m.name, "_")
		switch {
		case m.name == "resourceType", isSibling && of.member(base) != nil:
		case isSibling:
			w.element(t.within(base), base, &node{}, m.value)
		default:
			w.element(t.within(m.name), m.name, m.value, of.member("_"+m.name))
		}
	}
}

// element writes an element of a type, or one for each item of an array.
func (w writer) element(t *elementType, called string, n, sibling *node) {
	if n.kind != '[' && (sibling == nil || sibling.kind != '[') {
		w.single(t, name(called), n, sibling)
		return
	}
	for i := range max(len(n.items), items(sibling)) {
		item, extra := &node{}, (*node)(nil)
		if i < len(n.items) {
			item = n.items[i]
		}
		if i < items(sibling) {
			extra = sibling.items[i]
		}
		w.single(t, name(called), item, extra)
	}
}

// items returns the number of items of an array that may be missing.
func items(n *node) int {
	if n == nil {
		return 0
	}
	return len(n.items)
}

// single writes one element: a primitive, a resource, or one that has others in it.
func (w writer) single(t *elementType, called string, n, sibling *node) {
	switch {
	case called == "div" && n.kind == '"':
		w.WriteString(n.text) // XHTML is the same in both
	case n.kind == '{' && n.member("resourceType") != nil && n.member("resourceType").kind == '"':
		w.WriteString("<" + called + ">")
		w.resource(n, "")
		w.WriteString("</" + called + ">")
	case n.kind == '{':
		w.complex(t, called, n)
	default:
		w.primitive(called, n, sibling)
	}
}

// complex writes an element that has others in it. Its id, and the url of an extension, are attributes.
func (w writer) complex(t *elementType, called string, n *node) {
	w.WriteString("<" + called)
	var rest []member
	for _, m := range n.members {
		if m.name == "id" || m.name == "url" && strings.HasSuffix(strings.ToLower(called), "extension") {
			w.attribute(m.name, m.value.text)
			continue
		}
		rest = append(rest, m)
	}
	if len(rest) == 0 {
		w.WriteString("/>")
		return
	}
	w.WriteString(">")
	w.members(t, t.sorted(rest), n)
	w.WriteString("</" + called + ">")
}

// primitive writes a primitive with its extensions.
func (w writer) primitive(called string, n, sibling *node) {
	w.WriteString("<" + called)
	if id := sibling.member("id"); id != nil {
		w.attribute("id", id.text)
	}
	if n.kind != 0 && n.kind != 'n' {
		w.attribute("value", n.text)
	}
	extensions := sibling.member("extension")
	if extensions == nil {
		w.WriteString("/>")
		return
	}
	w.WriteString(">")
	w.element(types()["Extension"], "extension", extensions, nil)
	w.WriteString("</" + called + ">")
}

// attribute writes an attribute. What XML cannot hold, which are control characters, becomes U+FFFD.
func (w writer) attribute(called, value string) {
	w.WriteString(" " + called + `="`)
	_ = xml.EscapeText(w, []byte(value)) // a buffer takes everything
	w.WriteByte('"')
}

// name makes a member's name one that an element can have: FHIR's have letters and digits only.
func name(s string) string {
	s = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
	if s == "" || s[0] <= '9' {
		return "x" + s
	}
	return s
}
