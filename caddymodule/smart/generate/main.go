// Command generate generates the tables of FHIR R4's search parameters and compartments for the packages searchparam and
// compartment from R4's own definitions (see SOURCE.md). The output is deterministic.
//
// FHIRPath expressions become paths of JSON members: "(Observation.value as Quantity)" becomes valueQuantity. A parameter gets
// no paths if its expression is more than a path.
package main

import (
	"archive/zip"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Paths of the definitions in the archives.
const (
	parametersFile = "org/hl7/fhir/r4/model/sp/search-parameters.json"
	typesFile      = "org/hl7/fhir/r4/model/profile/profiles-types.xml"
	resourcesFile  = "org/hl7/fhir/r4/model/profile/profiles-resources.xml"
	valueSetsFile  = "org/hl7/fhir/r4/model/valueset/valuesets.xml"
)

// generators maps file names to the functions that generate their tables.
var generators = map[string]func(*zip.Reader) ([]string, error){
	"../searchparam/elements.tsv": elementTable,
	"../searchparam/r4.tsv":       parameterTable,
	"../compartment/r4.tsv":       compartmentTable,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate hapi-fhir-validation-resources-r4.jar")
	}
	for file, table := range generators {
		if err := write(os.Args[1], file, table); err != nil {
			log.Fatal(err)
		}
	}
}

// write generates a table from an archive and writes its lines to a file.
func write(archive, file string, table func(*zip.Reader) ([]string, error)) error {
	jar, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer jar.Close()
	lines, err := table(&jar.Reader)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// read returns the content of a file in the archive.
func read(jar *zip.Reader, name string) ([]byte, error) {
	file, err := jar.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// parameter contains the members of a SearchParameter that are needed.
type parameter struct {
	Code, Type, Expression string
	Base, Target           []string
}

// maxTargets is the maximum number of targets in a list. A longer list in R4 means all types.
const maxTargets = 140

// parameterTable returns the lines of the table of search parameters: type, name, kind, targets and paths.
func parameterTable(jar *zip.Reader) ([]string, error) {
	elements, err := elementTable(jar)
	if err != nil {
		return nil, err
	}
	s := searchparam.ReadStructures(strings.Join(elements, "\n"))
	text, err := read(jar, parametersFile)
	if err != nil {
		return nil, err
	}
	var bundle struct {
		Entry []struct{ Resource parameter }
	}
	if err := json.Unmarshal(text, &bundle); err != nil {
		return nil, fmt.Errorf("%s: %w", parametersFile, err)
	}
	var lines []string
	for _, entry := range bundle.Entry {
		lines = append(lines, entry.Resource.lines(s)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// lines returns a table line for each type of the parameter.
func (p parameter) lines(s searchparam.Structures) []string {
	var lines []string
	for _, base := range p.Base {
		columns := []string{base, p.Code, p.Type, p.targets(), strings.Join(p.paths(s, base), " ")}
		lines = append(lines, strings.Join(columns, "\t"))
	}
	return lines
}

// targets returns the target types of the parameter's references, or "*" for any type.
func (p parameter) targets() string {
	if len(p.Target) > maxTargets {
		return "*"
	}
	slices.Sort(p.Target)
	return strings.Join(p.Target, " ")
}

// paths returns the parameter's paths in a type. If any part of its expression is more than a path, it returns none, because
// the other parts alone would match too little.
func (p parameter) paths(s searchparam.Structures, base string) []string {
	if p.Type == "composite" || p.Expression == "" {
		return nil
	}
	paths, err := s.Paths(base, p.Expression)
	if err != nil {
		return nil
	}
	var formatted []string
	for _, path := range paths {
		formatted = append(formatted, formatPath(path))
	}
	return formatted
}

// formatPath returns a path in the syntax of the table.
func formatPath(p resource.Path) string {
	elements := slices.Clone(p.Elements)
	for _, f := range p.Filters {
		elements[f.Depth-1] += "[" + f.Element + "=" + f.Value + "]"
	}
	formatted := strings.Join(elements, ".")
	if p.Target != "" {
		formatted += "[" + p.Target + "]"
	}
	if p.System != "" {
		p.Type += "@" + p.System
	}
	return formatted + ":" + p.Type
}

// compartment is a CompartmentDefinition: resource types and the search parameters that make a resource a member. A type
// without parameters has no members.
type compartment struct {
	Code      attribute `xml:"code"`
	Resources []struct {
		Code   attribute   `xml:"code"`
		Params []attribute `xml:"param"`
	} `xml:"resource"`
}

// compartmentTable returns the lines of the table of compartments: the compartment, the type, and the search parameters that
// make a resource of the type a member. The owner of a compartment has {def}, which R4's definition of Patient omits.
func compartmentTable(jar *zip.Reader) ([]string, error) {
	text, err := read(jar, resourcesFile)
	if err != nil {
		return nil, err
	}
	var bundle struct {
		Compartments []compartment `xml:"entry>resource>CompartmentDefinition"`
	}
	if err := xml.Unmarshal(text, &bundle); err != nil {
		return nil, fmt.Errorf("%s: %w", resourcesFile, err)
	}
	var lines []string
	for _, c := range bundle.Compartments {
		lines = append(lines, c.lines()...)
	}
	slices.Sort(lines)
	return lines, nil
}

// lines returns a table line for each type that has members.
func (c compartment) lines() (lines []string) {
	for _, r := range c.Resources {
		var parameters []string
		for _, p := range r.Params {
			parameters = append(parameters, p.Value)
		}
		if r.Code == c.Code {
			parameters = append(parameters, "{def}")
		}
		if len(parameters) > 0 {
			slices.Sort(parameters)
			lines = append(lines, c.Code.Value+"\t"+r.Code.Value+"\t"+strings.Join(slices.Compact(parameters), " "))
		}
	}
	return lines
}

// structures contains the elements of R4's types by path, such as Observation.value[x], and the code systems of value sets that
// have only one.
type structures struct {
	elements map[string]element
	systems  map[string]string
}

// element contains the types of an element (or the path of the element with the same content) and its codes' value set.
type element struct {
	Path             attribute `xml:"path"`
	ContentReference attribute `xml:"contentReference"`
	ValueSet         attribute `xml:"binding>valueSet"`
	Types            []struct {
		Code attribute `xml:"code"`
	} `xml:"type"`
}

// attribute is the value attribute of a primitive in FHIR's XML.
type attribute struct {
	Value string `xml:"value,attr"`
}

// readStructures reads the elements of all types, including resources.
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

// add adds the elements of a Bundle of StructureDefinitions. Profiles are skipped, because the paths of their elements are
// those of the base type.
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

// inheritedElements matches the elements that all types have. The table omits them.
var inheritedElements = regexp.MustCompile(`\.(id|extension|modifierExtension)$`)

// elementTable returns the lines of the table of elements. A line consists of path and types. Elements of primitive types are
// omitted, because JSON stores them separately from the value.
func elementTable(jar *zip.Reader) ([]string, error) {
	s, err := readStructures(jar)
	if err != nil {
		return nil, err
	}
	var lines []string
	for path, e := range s.elements {
		if types := s.types(e); len(types) > 0 && !inheritedElements.MatchString(path) && path[0] < 'a' {
			lines = append(lines, path+"\t"+strings.Join(types, " "))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// types returns the types of an element, with the code system of its codes, or the path of the element with the same content.
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

// system returns the code system of an element's codes if there is exactly one.
func (s *structures) system(e element) string {
	valueSet, _, _ := strings.Cut(e.ValueSet.Value, "|")
	return s.systems[valueSet]
}
