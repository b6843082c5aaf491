package fhirxml

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Append converts resource, a resource in JSON, to an XML document and appends it. It returns an error if the JSON is malformed
// or not a resource. It does not validate anything else.
func Append(dst, resource []byte) ([]byte, error) {
	n, err := parseResource(resource)
	if err != nil {
		return dst, err
	}
	w := writer{Buffer: bytes.NewBuffer(dst)}
	w.WriteString(xml.Header)
	w.writeResource(n, ` xmlns="http://hl7.org/fhir"`)
	return w.Bytes(), nil
}

// noNode represents an absent value.
var noNode = new(node)

type writer struct{ *bytes.Buffer }

func (w writer) writeResource(n *node, attributes string) {
	kind := elementName(n.member("resourceType").text)
	t := types()[kind]
	w.WriteString("<" + kind + attributes + ">")
	w.writeMembers(t, n.members, n)
	w.WriteString("</" + kind + ">")
}

// writeMembers writes members as elements. Members with the prefix _ contain the ID and extensions of a primitive.
func (w writer) writeMembers(t *elementType, list []member, of *node) {
	t.sort(list)
	for _, m := range list {
		base, isSibling := strings.CutPrefix(m.name, "_")
		switch {
		case m.name == "resourceType", isSibling && of.member(base) != nil:
		case isSibling:
			w.writeElement(t.childType(base), base, noNode, m.value)
		default:
			w.writeElement(t.childType(m.name), m.name, m.value, of.member("_"+m.name))
		}
	}
}

// writeElement writes an element or, for an array, one element per item.
func (w writer) writeElement(t *elementType, name string, n, sibling *node) {
	sibling = cmp.Or(sibling, noNode)
	if n.kind != '[' && sibling.kind != '[' {
		w.writeSingleElement(t, elementName(name), n, sibling)
		return
	}
	for i := range max(len(n.items), len(sibling.items)) {
		item, extra := noNode, noNode
		if i < len(n.items) {
			item = n.items[i]
		}
		if i < len(sibling.items) {
			extra = sibling.items[i]
		}
		w.writeSingleElement(t, elementName(name), item, extra)
	}
}

func (w writer) writeSingleElement(t *elementType, elementName string, n, sibling *node) {
	switch {
	case elementName == "div" && n.kind == '"':
		w.WriteString(n.text) // XHTML is identical in both formats
	case n.kind == '{' && n.member("resourceType") != nil && n.member("resourceType").kind == '"':
		w.WriteString("<" + elementName + ">")
		w.writeResource(n, "")
		w.WriteString("</" + elementName + ">")
	case n.kind == '{':
		w.writeComplex(t, elementName, n)
	default:
		w.writePrimitive(elementName, n, sibling)
	}
}

// writeComplex writes an element with nested elements. Its ID and, for an extension, its URL are attributes.
func (w writer) writeComplex(t *elementType, elementName string, n *node) {
	w.WriteString("<" + elementName)
	var rest []member
	for _, m := range n.members {
		if m.name == "id" || m.name == "url" && strings.HasSuffix(strings.ToLower(elementName), "extension") {
			w.writeAttribute(m.name, m.value.text)
			continue
		}
		rest = append(rest, m)
	}
	if len(rest) == 0 {
		w.WriteString("/>")
		return
	}
	w.WriteString(">")
	w.writeMembers(t, rest, n)
	w.WriteString("</" + elementName + ">")
}

func (w writer) writePrimitive(elementName string, n, sibling *node) {
	w.WriteString("<" + elementName)
	if id := sibling.member("id"); id != nil {
		w.writeAttribute("id", id.text)
	}
	if n.kind != 0 && n.kind != 'n' {
		w.writeAttribute("value", n.text)
	}
	extensions := sibling.member("extension")
	if extensions == nil {
		w.WriteString("/>")
		return
	}
	w.WriteString(">")
	w.writeElement(types()["Extension"], "extension", extensions, nil)
	w.WriteString("</" + elementName + ">")
}

// writeAttribute writes an attribute. Control characters are invalid in XML and replaced by U+FFFD.
func (w writer) writeAttribute(elementName, value string) {
	w.WriteString(" " + elementName + `="`)
	_ = xml.EscapeText(w, []byte(value)) // bytes.Buffer never returns an error
	w.WriteByte('"')
}

// elementName returns s without characters that are invalid in element names: FHIR's names consist of letters and digits.
func elementName(s string) string {
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

// node is a JSON value.
type node struct {
	kind    jsontext.Kind
	text    string // value, if the node is a string, number or boolean
	members []member
	items   []*node
}

type member struct {
	name  string
	value *node
}

func (n *node) member(name string) *node {
	if n == nil {
		return nil
	}
	for _, m := range n.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

var errNotResource = errors.New("fhirxml: not a resource")

// maxDepth is the maximum nesting depth of elements.
const maxDepth = 2000

func parseResource(resource []byte) (*node, error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(resource), jsontext.AllowDuplicateNames(true))
	n, err := readNode(decoder, 0)
	if err != nil {
		return nil, fmt.Errorf("fhirxml: parsing resource: %w", err)
	}
	if kind := n.member("resourceType"); kind == nil || kind.kind != '"' {
		return nil, errNotResource
	}
	return n, nil
}

func readNode(decoder *jsontext.Decoder, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errors.New("elements are nested too deeply")
	}
	token, err := decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	n := &node{kind: token.Kind()}
	if n.kind != '{' && n.kind != '[' {
		n.text = token.String()
		return n, nil
	}
	for kind := decoder.PeekKind(); kind != '}' && kind != ']'; kind = decoder.PeekKind() {
		var m member
		if n.kind == '{' {
			name, err := decoder.ReadToken()
			if err != nil {
				return nil, err
			}
			m.name = name.String()
		}
		if m.value, err = readNode(decoder, depth+1); err != nil {
			return nil, err
		}
		if n.kind == '{' {
			n.members = append(n.members, m)
		} else {
			n.items = append(n.items, m.value)
		}
	}
	_, err = decoder.ReadToken()
	return n, err
}
