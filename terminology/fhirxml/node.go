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
	switch n.kind {
	case '{':
		return n, readMembers(decoder, n, depth)
	case '[':
		return n, readItems(decoder, n, depth)
	}
	n.text = token.String()
	return n, nil
}

func readMembers(decoder *jsontext.Decoder, n *node, depth int) error {
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		m := member{name: name.String()}
		if m.value, err = read(decoder, depth+1); err != nil {
			return err
		}
		n.members = append(n.members, m)
	}
	_, err := decoder.ReadToken()
	return err
}

func readItems(decoder *jsontext.Decoder, n *node, depth int) error {
	for decoder.PeekKind() != ']' {
		item, err := read(decoder, depth+1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, err := decoder.ReadToken()
	return err
}
