package searchparam

import (
	_ "embed" // for the table
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

//go:generate go run ../generate -elements elements.tsv -parameters r4.tsv ../generate/hapi-fhir-validation-resources-r4-8.8.0.jar

// r4 has a line for each parameter of each type: type, name, kind, targets and paths.
//
//go:embed r4.tsv
var r4 string

// key is the type and the name of a parameter.
type key struct{ resourceType, name string }

// table returns the parameters, which are read once.
var table = sync.OnceValue(func() map[key]Parameter {
	parameters := make(map[key]Parameter, 2048)
	for line := range strings.Lines(r4) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		parameters[key{columns[0], columns[1]}] = readParameter(columns)
	}
	return parameters
})

// readParameter reads the columns of a line.
func readParameter(columns []string) Parameter {
	p := Parameter{Name: columns[1], Kind: Kind(slices.Index(kindNames[:], columns[2]))}
	if columns[3] != "" && columns[3] != "*" {
		p.Targets = strings.Fields(columns[3])
	}
	for path := range strings.FieldsSeq(columns[4]) {
		p.Paths = append(p.Paths, readPath(path))
	}
	return p
}

// readPath reads a path, such as participant.actor[Patient]:Reference, telecom[system=phone]:ContactPoint or
// status:code@http://hl7.org/fhir/observation-status.
func readPath(written string) resource.Path {
	var p resource.Path
	written, p.Type, _ = strings.Cut(written, ":")
	p.Type, p.System, _ = strings.Cut(p.Type, "@")
	p.Elements = strings.Split(written, ".")
	for i, element := range p.Elements {
		name, condition, ok := strings.Cut(strings.TrimSuffix(element, "]"), "[")
		if !ok {
			continue
		}
		p.Elements[i] = name
		if member, value, ok := strings.Cut(condition, "="); ok {
			p.Filters = append(p.Filters, resource.Filter{Depth: i + 1, Element: member, Value: value})
		} else {
			p.Target = condition
		}
	}
	return p
}

// Lookup returns a parameter of a resource type, those of all resources included, such as _id.
func Lookup(resourceType, name string) (Parameter, bool) {
	t := table()
	if p, ok := t[key{resourceType, name}]; ok {
		return p, true
	}
	if p, ok := t[key{"Resource", name}]; ok {
		return p, true
	}
	if !isDomainResource(resourceType) {
		return Parameter{}, false
	}
	p, ok := t[key{"DomainResource", name}]
	return p, ok
}

// isDomainResource reports whether a type has what most types have, such as narrative.
func isDomainResource(resourceType string) bool {
	return resourceType != "Binary" && resourceType != "Bundle" && resourceType != "Parameters"
}
