package main

import (
	"archive/zip"
	"encoding/xml"
	"fmt"
	"strings"
)

// structures is the elements of R4's types by their path, such as Observation.value[x].
type structures map[string]element

// element is what its types are, or the path of the element whose content it has.
type element struct {
	Path             attribute `xml:"path"`
	ContentReference attribute `xml:"contentReference"`
	Types            []struct {
		Code attribute `xml:"code"`
	} `xml:"type"`
}

// attribute is how FHIR's XML writes a primitive value.
type attribute struct {
	Value string `xml:"value,attr"`
}

// readStructures reads the elements of all types, those of resources included.
func readStructures(jar *zip.Reader) (structures, error) {
	s := make(structures)
	for _, name := range []string{typesFile, resourcesFile} {
		text, err := read(jar, name)
		if err != nil {
			return nil, err
		}
		if err := s.add(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return s, nil
}

// add adds the elements of a Bundle of StructureDefinitions. Those of profiles on a type have the paths of the type, so
// only definitions of types count.
func (s structures) add(text []byte) error {
	var bundle struct {
		Entry []struct {
			Definition struct {
				Derivation attribute `xml:"derivation"`
				Elements   []element `xml:"snapshot>element"`
			} `xml:"resource>StructureDefinition"`
		} `xml:"entry"`
	}
	if err := xml.Unmarshal(text, &bundle); err != nil {
		return err
	}
	for _, entry := range bundle.Entry {
		if entry.Definition.Derivation.Value == "constraint" {
			continue
		}
		for _, e := range entry.Definition.Elements {
			s[e.Path.Value] = e
		}
	}
	return nil
}

// step is an element as JSON has it: its name, its type, and the path under which its own elements are found.
type step struct{ name, code, path string }

// steps returns the members that an element below a path may be: one for most, one for each type of a choice, and of
// these only the wanted type if there is one.
func (s structures) steps(below, name, wanted string) []step {
	if e, ok := s[below+"."+name]; ok {
		return []step{s.step(e, name, 0)}
	}
	e := s[below+"."+name+"[x]"]
	var steps []step
	for i, t := range e.Types {
		if wanted == "" || t.Code.Value == wanted {
			steps = append(steps, s.step(e, name+strings.ToUpper(t.Code.Value[:1])+t.Code.Value[1:], i))
		}
	}
	return steps
}

// step returns the member for one of the types of an element.
func (s structures) step(e element, name string, i int) step {
	if e.ContentReference.Value != "" {
		return step{name, "BackboneElement", strings.TrimPrefix(e.ContentReference.Value, "#")}
	}
	code := strings.TrimPrefix(e.Types[i].Code.Value, "http://hl7.org/fhirpath/System.")
	if code == "String" {
		code = "string"
	}
	if code == "BackboneElement" || code == "Element" {
		return step{name, code, e.Path.Value}
	}
	return step{name, code, code}
}
