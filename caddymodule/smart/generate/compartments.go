package main

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// The annotations of HL7's Java model.
const (
	parameterAnnotation = "Lca/uhn/fhir/model/api/annotation/SearchParamDefinition;"
	membership          = "providesMembershipIn"
)

// compartments are R4's. The model has, besides, the names that the definitions of some compartments have as titles.
var compartments = []string{"Device", "Encounter", "Patient", "Practitioner", "RelatedPerson"}

// compartmentTable returns the lines of the table of compartments: compartment, type, and the names of the search
// parameters that make a resource of the type a member. The resource that a compartment is for has {def}, as the
// definitions write it; the Java model leaves that out.
func compartmentTable(jar *zip.Reader) ([]string, error) {
	names, err := fs.Glob(jar, modelFolder+"*.class")
	if err != nil {
		return nil, err
	}
	members := make(map[string][]string)
	for _, name := range names {
		if strings.Contains(name, "$") {
			continue
		}
		text, err := read(jar, name)
		if err != nil {
			return nil, err
		}
		annotations, err := fieldAnnotations(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		collect(members, typeOf(name), annotations)
	}
	for _, c := range compartments {
		members[c+"\t"+c] = append(members[c+"\t"+c], "{def}")
	}
	return memberLines(members), nil
}

// typeOf returns the resource type of a class: List has another name in Java, where that one is taken.
func typeOf(name string) string {
	class := strings.TrimSuffix(filepath.Base(name), ".class")
	if class == "ListResource" {
		return "List"
	}
	return class
}

// collect adds the parameters of a type to the compartments they are of.
func collect(members map[string][]string, resourceType string, annotations []annotation) {
	for _, a := range annotations {
		in, _ := a.values[membership].([]any)
		for _, c := range in {
			c, _ := c.(annotation)
			compartment, _ := c.values["name"].(string)
			compartment = compartment[strings.LastIndexByte(compartment, ' ')+1:]
			parameter, _ := a.values["name"].(string)
			if a.name == parameterAnnotation && slices.Contains(compartments, compartment) {
				key := compartment + "\t" + resourceType
				members[key] = append(members[key], parameter)
			}
		}
	}
}

// memberLines writes the members, sorted.
func memberLines(members map[string][]string) []string {
	var lines []string
	for key, parameters := range members {
		slices.Sort(parameters)
		lines = append(lines, key+"\t"+strings.Join(slices.Compact(parameters), " "))
	}
	slices.Sort(lines)
	return lines
}
