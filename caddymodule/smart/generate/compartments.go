package main

import (
	"archive/zip"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// compartment is a CompartmentDefinition: the resource types, and the search parameters that make a resource of one a
// member. A type without parameters has no members.
type compartment struct {
	Of        attribute `xml:"code"`
	Resources []struct {
		Code   attribute   `xml:"code"`
		Params []attribute `xml:"param"`
	} `xml:"resource"`
}

// compartmentTable returns the lines of the table of compartments: compartment, type, and the names of the search
// parameters that make a resource of the type a member. The resource that a compartment is for has {def}, as some
// definitions write it; that of Patient leaves it out.
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

// lines returns a line for each type that has members.
func (c compartment) lines() (lines []string) {
	for _, r := range c.Resources {
		var parameters []string
		for _, p := range r.Params {
			parameters = append(parameters, p.Value)
		}
		if r.Code == c.Of {
			parameters = append(parameters, "{def}")
		}
		if len(parameters) > 0 {
			slices.Sort(parameters)
			lines = append(lines, c.Of.Value+"\t"+r.Code.Value+"\t"+strings.Join(slices.Compact(parameters), " "))
		}
	}
	return lines
}
