package searchparam

import (
	_ "embed" // for the elements
	"slices"
	"strings"
	"sync"
)

// elements has a line for each element of R4's types: its path, and its types.
//
//go:embed elements.tsv
var elements string

// Structures are the elements of FHIR's types, by their path, such as Observation.value[x]: what types each may have,
// one of type code with its code system as code@system. An element that has the content of another one has that one's
// path, as #Observation.referenceRange.
//
// Those that all elements have, id, extension and modifierExtension, are left out.
type Structures map[string][]string

// r4Structures are those of R4. They are read once, and only where a site has search parameters of its own.
var r4Structures = sync.OnceValue(func() Structures { return ReadStructures(elements) })

// ReadStructures reads lines of a path, a tab, and types separated by spaces.
func ReadStructures(lines string) Structures {
	s := make(Structures, 8192)
	for line := range strings.Lines(lines) {
		path, types, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		s[path] = strings.Fields(types)
	}
	return s
}

// has reports whether there is a type of resources.
func (s Structures) has(resourceType string) bool { return s[resourceType+".meta"] != nil }

// step is an element as JSON has it: its name, its type and the code system of it, and under which path its own
// elements are found.
type step struct{ name, fhirType, system, below string }

// steps returns the members that an element below a path may be: one for most, one for each type of a choice. The name
// may be that of one of a choice, such as valueDateTime, as in JSON. A primitive has none: what it is extended by stands
// elsewhere in JSON.
func (s Structures) steps(below, name string) []step {
	switch {
	case below[0] >= 'a':
		return nil
	case name == "id":
		return []step{{name, "string", "", "string"}}
	case name == "extension", name == "modifierExtension":
		return []step{{name, "Extension", "", "Extension"}}
	}
	if types := s[below+"."+name]; len(types) > 0 {
		return []step{s.step(below+"."+name, name, types[0])}
	}
	if types := s.choice(below, name); len(types) > 0 {
		return types
	}
	for at := 1; at < len(name); at++ {
		all := s.choice(below, name[:at])
		if i := slices.IndexFunc(all, func(e step) bool { return e.name == name }); i >= 0 {
			return all[i : i+1]
		}
	}
	return nil
}

// choice are the members that an element with a choice of types may be.
func (s Structures) choice(below, name string) (all []step) {
	path := below + "." + name + "[x]"
	for _, t := range s[path] {
		typed, _, _ := strings.Cut(t, "@")
		all = append(all, s.step(path, name+strings.ToUpper(typed[:1])+typed[1:], t))
	}
	return all
}

// step returns the member for one of the types of an element.
func (s Structures) step(path, name, fhirType string) step {
	if same, ok := strings.CutPrefix(fhirType, "#"); ok {
		return step{name, "BackboneElement", "", same}
	}
	fhirType, system, _ := strings.Cut(fhirType, "@")
	if fhirType == "BackboneElement" || fhirType == "Element" {
		return step{name, fhirType, "", path}
	}
	return step{name, fhirType, system, fhirType}
}
