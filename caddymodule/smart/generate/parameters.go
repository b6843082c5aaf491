package main

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// parameter is a SearchParameter, as far as it is needed.
type parameter struct {
	Code, Type, Expression string
	Base, Target           []string
}

// anyTarget is the number of targets beyond which R4 lists all types there are.
const anyTarget = 140

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

// lines returns a line for each type that the parameter is for.
func (p parameter) lines(s searchparam.Structures) []string {
	var lines []string
	for _, base := range p.Base {
		columns := []string{base, p.Code, p.Type, p.targets(), strings.Join(p.paths(s, base), " ")}
		lines = append(lines, strings.Join(columns, "\t"))
	}
	return lines
}

// targets returns the types that the parameter's references may be to; * for any.
func (p parameter) targets() string {
	if len(p.Target) > anyTarget {
		return "*"
	}
	slices.Sort(p.Target)
	return strings.Join(p.Target, " ")
}

// paths returns the parameter's paths in a type; none if any part of its expression is more than a path, since a part
// alone would find too little.
func (p parameter) paths(s searchparam.Structures, base string) []string {
	if p.Type == "composite" || p.Expression == "" {
		return nil
	}
	paths, err := s.Paths(base, p.Expression)
	if err != nil {
		return nil
	}
	var written []string
	for _, path := range paths {
		written = append(written, inTable(path))
	}
	return written
}

// inTable is a path as the table has it.
func inTable(p resource.Path) string {
	elements := slices.Clone(p.Elements)
	for _, f := range p.Filters {
		elements[f.Depth-1] += "[" + f.Element + "=" + f.Value + "]"
	}
	written := strings.Join(elements, ".")
	if p.Target != "" {
		written += "[" + p.Target + "]"
	}
	if p.System != "" {
		p.Type += "@" + p.System
	}
	return written + ":" + p.Type
}
