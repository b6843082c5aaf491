package main

import (
	"archive/zip"
	"encoding/xml"
	"fmt"
	"strings"
)

// structures is the elements of R4's types by their path, such as Observation.value[x], and the code systems of value
// sets that have only one.
type structures struct {
	elements map[string]element
	systems  map[string]string
}

// element is what its types are, or the path of the element whose content it has, and the value set of its codes.
type element struct {
	Path             attribute `xml:"path"`
	ContentReference attribute `xml:"contentReference"`
	ValueSet         attribute `xml:"binding>valueSet"`
	Types            []struct {
		Code attribute `xml:"code"`
	} `xml:"type"`
}

// attribute is how FHIR's XML writes a primitive value.
type attribute struct {
	Value string `xml:"value,attr"`
}

// readStructures reads the elements of all types, those of resources included.
func readStructures(jar *zip.Reader) (*structures, error) {
	s := &structures{make(map[string]element), make(map[string]string)}
	for _, file := range []struct {
		name string
		add  func([]byte) error
	}{{typesFile, s.add}, {resourcesFile, s.add}, {valueSetsFile, s.addSystems}} {
		text, err := read(jar, file.name)
		if err != nil {
			return nil, err
		}
		if err := file.add(text); err != nil {
			return nil, fmt.Errorf("%s: %w", file.name, err)
		}
	}
	return s, nil
}

// add adds the elements of a Bundle of StructureDefinitions. Those of profiles on a type have the paths of the type, so
// only definitions of types count.
func (s *structures) add(text []byte) error {
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
			s.elements[e.Path.Value] = e
		}
	}
	return nil
}

// addSystems adds the code systems of a Bundle of ValueSets.
func (s *structures) addSystems(text []byte) error {
	var bundle struct {
		Entry []struct {
			ValueSet struct {
				URL      attribute   `xml:"url"`
				Systems  []attribute `xml:"compose>include>system"`
				Imported []attribute `xml:"compose>include>valueSet"`
			} `xml:"resource>ValueSet"`
		} `xml:"entry"`
	}
	if err := xml.Unmarshal(text, &bundle); err != nil {
		return err
	}
	for _, entry := range bundle.Entry {
		if v := entry.ValueSet; len(v.Systems) == 1 && len(v.Imported) == 0 {
			s.systems[v.URL.Value] = v.Systems[0].Value
		}
	}
	return nil
}

// step is an element as JSON has it: its name, its type, and the path under which its own elements are found.
type step struct{ name, code, path string }

// steps returns the members that an element below a path may be: one for most, one for each type of a choice, and of
// these only the wanted type if there is one.
func (s *structures) steps(below, name, wanted string) []step {
	if e, ok := s.elements[below+"."+name]; ok {
		return []step{s.step(e, name, 0)}
	}
	e := s.elements[below+"."+name+"[x]"]
	var steps []step
	for i, t := range e.Types {
		if wanted == "" || t.Code.Value == wanted {
			steps = append(steps, s.step(e, name+strings.ToUpper(t.Code.Value[:1])+t.Code.Value[1:], i))
		}
	}
	return steps
}

// step returns the member for one of the types of an element.
func (s *structures) step(e element, name string, i int) step {
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
	if system := s.system(e); code == "code" && system != "" {
		return step{name, code + "@" + system, code}
	}
	return step{name, code, code}
}

// system returns the code system of an element's codes, if they are all of one.
func (s *structures) system(e element) string {
	valueSet, _, _ := strings.Cut(e.ValueSet.Value, "|")
	return s.systems[valueSet]
}
