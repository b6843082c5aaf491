package main

import (
	"archive/zip"
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// tabularValueSet is the URL of the value set with all codes of ICD-10-CM.
const tabularValueSet = "http://hl7.org/fhir/sid/icd-10-cm/vs"

// concept is a code of ICD-10-CM.
type concept struct {
	code, display, parent string
	terms                 []string // synonyms and other inclusion terms
	header                bool     // whether the concept has child codes and is not selectable
}

// with returns the concept with the seventh character appended to its code, padded with X.
func (c concept) with(s seventhCharacter) concept {
	code := c.code
	if len(code) == 3 {
		code += "."
	}
	return concept{
		code:    code + strings.Repeat("X", max(0, len("A00.000")-len(code))) + s.Character,
		display: c.display + ", " + collapseSpaces(s.Title), parent: c.code,
	}
}

// MarshalJSON encodes the concept as an entry of CodeSystem.concept.
func (c concept) MarshalJSON() ([]byte, error) {
	type designation struct {
		Value string `json:"value"`
	}
	type property struct {
		Code    string `json:"code"`
		Parent  string `json:"valueCode,omitempty"`
		Boolean bool   `json:"valueBoolean,omitempty"`
	}
	out := struct {
		Code        string        `json:"code"`
		Display     string        `json:"display"`
		Designation []designation `json:"designation,omitempty"`
		Property    []property    `json:"property,omitempty"`
	}{Code: c.code, Display: c.display}
	for _, t := range c.terms {
		out.Designation = append(out.Designation, designation{collapseSpaces(t)})
	}
	if c.parent != "" {
		out.Property = append(out.Property, property{Code: "parent", Parent: c.parent})
	}
	if c.header {
		out.Property = append(out.Property, property{Code: "notSelectable", Boolean: true})
	}
	return json.Marshal(out)
}

// writeICD10CM converts the tabular list in the Python package to a CodeSystem.
func writeICD10CM(definitions, from string, terms bool) error {
	wheel, err := zip.OpenReader(from)
	if err != nil {
		return err
	}
	defer wheel.Close()
	valid, err := validCodes(wheel)
	if err != nil {
		return err
	}
	file, err := openOne(wheel, "simple_icd_10_cm/data/icd10c-tabular-*.xml")
	if err != nil {
		return err
	}
	defer file.Close()
	t, err := readTabular(bufio.NewReaderSize(file, 1<<16))
	if err != nil {
		return err
	}
	return writeCodeSystem(definitions, t.Version, t.concepts(valid), terms)
}

// openOne opens the only file that matches a pattern, because file names contain the month of the release.
func openOne(folder fs.FS, pattern string) (fs.File, error) {
	names, err := fs.Glob(folder, pattern)
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("%d files %s", len(names), pattern)
	}
	return folder.Open(names[0])
}

// validCodes returns the valid codes, without dots.
func validCodes(folder fs.FS) (map[string]bool, error) {
	file, err := openOne(folder, "simple_icd_10_cm/data/code-list-*.txt")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	valid := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		code, _, _ := strings.Cut(lines.Text(), " ")
		valid[strings.ReplaceAll(code, ".", "")] = true
	}
	return valid, lines.Err()
}

// writeCodeSystem writes the concepts as a CodeSystem. If terms is true, it includes their terms as designations.
func writeCodeSystem(name, version string, concepts []concept, terms bool) error {
	if !terms {
		for i := range concepts {
			concepts[i].terms = nil
		}
	}
	text, err := json.Marshal(map[string]any{
		"resourceType": "CodeSystem", "url": "http://hl7.org/fhir/sid/icd-10-cm", "version": version, "name": "ICD10CM",
		"status": "active", "content": "complete", "valueSet": tabularValueSet, "hierarchyMeaning": "is-a",
		"property": []map[string]string{
			{"code": "parent", "uri": "http://hl7.org/fhir/concept-properties#parent", "type": "code"},
			{"code": "notSelectable", "uri": "http://hl7.org/fhir/concept-properties#notSelectable", "type": "boolean"},
		},
		"concept": concepts,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}
