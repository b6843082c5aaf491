package fhirxml

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// table contains the R4 types, one per line: the name, and the elements in order as name:type, with an asterisk after the name
// if the element may repeat. Types with a value are JSON types: boolean, number, string; or xhtml. core/SOURCE.md describes the
// origin.
//
//go:generate go run ./generate -out r4.txt ../definitions/core/package
//go:embed r4.txt
var table string

type elementType struct {
	name     string
	elements []element
	indexes  map[string]int // indexes of elements by name
}

type element struct {
	name, kind string
	repeats    bool
}

var types = sync.OnceValue(func() map[string]*elementType {
	all := make(map[string]*elementType)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		t := &elementType{name: fields[0], indexes: make(map[string]int, len(fields))}
		for i, field := range fields[1:] {
			name, kind, _ := strings.Cut(field, ":")
			name, repeats := strings.CutSuffix(name, "*")
			t.elements = append(t.elements, element{name: name, kind: kind, repeats: repeats})
			t.indexes[name] = i
		}
		all[t.name] = t
	}
	return all
})

// element returns the element of a type with the given name. ok is false if there is none. A nil type has no elements.
func (t *elementType) element(name string) (e element, ok bool) {
	if t == nil {
		return e, false
	}
	i, ok := t.indexes[name]
	if ok {
		e = t.elements[i]
	}
	return e, ok
}

// childType returns the type of the content of an element, or nil if it is unknown.
func (t *elementType) childType(name string) *elementType {
	e, _ := t.element(name)
	return types()[e.kind]
}

// unknownStart lists the elements that come first in resources of unknown types.
var unknownStart = []string{"id", "meta", "implicitRules", "language", "text", "contained", "extension", "modifierExtension"}

// sort sorts members in the order that XML requires.
func (t *elementType) sort(members []member) {
	rank := func(m member) int {
		name := strings.TrimPrefix(m.name, "_")
		if t == nil {
			if i := slices.Index(unknownStart, name); i >= 0 {
				return i
			}
			return len(unknownStart)
		}
		if i, ok := t.indexes[name]; ok {
			return i
		}
		return len(t.elements)
	}
	slices.SortStableFunc(members, func(a, b member) int { return rank(a) - rank(b) })
}
