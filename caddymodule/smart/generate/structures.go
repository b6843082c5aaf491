package main

import (
	"archive/zip"
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
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

// inherited are the elements that all have, and that the table leaves out.
var inherited = regexp.MustCompile(`\.(id|extension|modifierExtension)$`)

// elementTable returns the lines of the table of elements: their path, and their types. Those of primitive types are in
// JSON beside the value, and left out.
func elementTable(jar *zip.Reader) ([]string, error) {
	s, err := readStructures(jar)
	if err != nil {
		return nil, err
	}
	var lines []string
	for path, e := range s.elements {
		if types := s.types(e); len(types) > 0 && !inherited.MatchString(path) && path[0] < 'a' {
			lines = append(lines, path+"\t"+strings.Join(types, " "))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// types are the types of an element, of codes with their code system; or the path of the element whose content it has.
func (s *structures) types(e element) (types []string) {
	if e.ContentReference.Value != "" {
		return []string{e.ContentReference.Value}
	}
	system := s.system(e)
	for _, t := range e.Types {
		code := strings.TrimPrefix(t.Code.Value, "http://hl7.org/fhirpath/System.")
		switch {
		case code == "String":
			code = "string"
		case code == "code" && system != "":
			code += "@" + system
		}
		types = append(types, code)
	}
	return types
}

// system returns the code system of an element's codes, if they are all of one.
func (s *structures) system(e element) string {
	valueSet, _, _ := strings.Cut(e.ValueSet.Value, "|")
	return s.systems[valueSet]
}
