package fhirxml

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// table is the types of R4, one on a line: its name, and its elements in their order, each as name:type, with
// an asterisk after the name of one that may repeat. Types with values instead of elements are those of JSON:
// boolean, number, string, and xhtml. See core/SOURCE.md for where it is from.
//
//go:generate go run ./generate -out r4.txt ../definitions/core/package
//go:embed r4.txt
var table string

type elementType struct {
	name     string
	elements []element
	places   map[string]int // of the elements, by name
}

type element struct {
	name, kind string
	repeats    bool
}

var types = sync.OnceValue(func() map[string]*elementType {
	all := make(map[string]*elementType)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		t := &elementType{name: fields[0], places: make(map[string]int, len(fields))}
		for i, field := range fields[1:] {
			name, kind, _ := strings.Cut(field, ":")
			name, repeats := strings.CutSuffix(name, "*")
			t.elements = append(t.elements, element{name: name, kind: kind, repeats: repeats})
			t.places[name] = i
		}
		all[t.name] = t
	}
	return all
})

// element finds an element of a type; a nil type has none.
func (t *elementType) element(name string) (e element, ok bool) {
	if t == nil {
		return e, false
	}
	i, ok := t.places[name]
	if ok {
		e = t.elements[i]
	}
	return e, ok
}

// within returns the type of an element's content, or nil if unknown.
func (t *elementType) within(name string) *elementType {
	e, _ := t.element(name)
	return types()[e.kind]
}

// unknownStart are the first elements of an unknown type.
var unknownStart = []string{"id", "meta", "implicitRules", "language", "text", "contained", "extension", "modifierExtension"}

// sort brings members into XML order.
func (t *elementType) sort(members []member) {
	rank := func(m member) int {
		name := strings.TrimPrefix(m.name, "_")
		if t == nil {
			if i := slices.Index(unknownStart, name); i >= 0 {
				return i
			}
			return len(unknownStart)
		}
		if i, ok := t.places[name]; ok {
			return i
		}
		return len(t.elements)
	}
	slices.SortStableFunc(members, func(a, b member) int { return rank(a) - rank(b) })
}
