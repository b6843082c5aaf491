package fhirxml

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// node is a JSON value.
type node struct {
	kind    jsontext.Kind
	text    string // of a string, number or boolean
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

// maxDepth bounds the nesting of elements.
const maxDepth = 2000

func parse(resource []byte) (*node, error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(resource), jsontext.AllowDuplicateNames(true))
	n, err := read(decoder, 0)
	if err != nil {
		return nil, fmt.Errorf("fhirxml: %w", err)
	}
	if kind := n.member("resourceType"); kind == nil || kind.kind != '"' {
		return nil, errNotResource
	}
	return n, nil
}

func read(decoder *jsontext.Decoder, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errors.New("elements are nested too deep")
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
		if m.value, err = read(decoder, depth+1); err != nil {
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
