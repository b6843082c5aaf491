package searchparam

import (
	"cmp"
	_ "embed" // for r4Table
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Definition contains the members of a SearchParameter resource that are needed.
type Definition struct {
	// URL is the canonical URL, for error messages. Optional.
	URL string `json:"url"`
	// Code is the name of the parameter in a search.
	Code string `json:"code"`
	// Type is the kind of the parameter, as a FHIR code.
	Type string `json:"type"`
	// Expression is the FHIRPath expression for the searched elements.
	Expression string `json:"expression"`
	// Base are the resource types to which the parameter applies.
	Base []string `json:"base"`
	// Target are the target types of a reference. If empty, any type.
	Target []string `json:"target"`
}

// Set is a set of search parameters: R4's and those of a site. The zero value has only R4's. Do not modify it after first use.
type Set struct{ siteDefined map[parameterKey]Parameter }

// Errors of [Set.Add], in addition to those for an invalid expression.
var (
	// ErrStandardParameter means that R4 defines the parameter. It cannot be replaced, because compartments depend on it.
	ErrStandardParameter = errors.New("search parameter is already defined by FHIR R4")
	// errInvalidDefinition means that a definition is incomplete or contradicts another definition.
	errInvalidDefinition = errors.New("invalid search parameter")
)

var codePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

// Add adds a site's parameter to each type of the definition's base that lacks it in R4. After an error, nothing is added.
func (s *Set) Add(d Definition) error {
	added := make(map[parameterKey]Parameter, len(d.Base))
	for _, base := range d.Base {
		if _, isStandard := Lookup(base, d.Code); isStandard {
			continue
		}
		p, err := d.parameter(base)
		if existing, ok := s.siteDefined[parameterKey{base, d.Code}]; err == nil && ok && !reflect.DeepEqual(existing, p) {
			err = fmt.Errorf("%w: conflicting definitions", errInvalidDefinition)
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", d.Code, base, err)
		}
		added[parameterKey{base, d.Code}] = p
	}
	if len(added) == 0 && len(d.Base) > 0 {
		return fmt.Errorf("%s: %w", d.Code, ErrStandardParameter)
	}
	if s.siteDefined == nil {
		s.siteDefined = map[parameterKey]Parameter{}
	}
	maps.Copy(s.siteDefined, added)
	return nil
}

// Lookup returns a parameter of a resource type: R4's, including those of all types, or a site-specific one.
func (s Set) Lookup(resourceType, name string) (Parameter, bool) {
	if p, ok := Lookup(resourceType, name); ok {
		return p, true
	}
	p, ok := s.siteDefined[parameterKey{resourceType, name}]
	return p, ok
}

// ParametersOf returns the parameters of a resource type that can be evaluated, sorted by name: R4's, including those of all
// types, and site-specific ones.
func (s Set) ParametersOf(resourceType string) []Parameter {
	list := Parameters(resourceType)
	for k, p := range s.siteDefined {
		if k.resourceType == resourceType {
			list = append(list, p)
		}
	}
	sortParameters(list)
	return list
}

// parameter returns the parameter of one type, or an error if it cannot be evaluated.
func (d Definition) parameter(base string) (Parameter, error) {
	p := Parameter{Name: d.Code, Targets: slices.Sorted(slices.Values(d.Target)), IsSiteDefined: true}
	structures, kind := r4Structures(), slices.Index(kindNames[:], d.Type)
	if kind < 0 || !codePattern.MatchString(d.Code) {
		return p, fmt.Errorf("%w: type must be one of %v, and code must have only letters, digits and hyphens", errInvalidDefinition, kindNames)
	}
	for _, t := range append([]string{base}, d.Target...) {
		if !structures.hasType(t) || isBaseType(t) {
			return p, fmt.Errorf("%w: %q is not a resource type of FHIR R4", errInvalidDefinition, t)
		}
	}
	p.Kind = Kind(kind)
	paths, err := structures.Paths(base, d.Expression)
	if err != nil {
		return p, err
	}
	p.Paths = slices.DeleteFunc(paths, func(path resource.Path) bool { return !slices.Contains(comparableTypes[p.Kind], path.Type) })
	if len(p.Paths) == 0 {
		return p, expressionError("path leads to no element of %s that type %s can compare", base, d.Type)
	}
	return p, nil
}

// comparableTypes are the types of elements that can be compared, by kind of parameter. Composite and special parameters
// evaluate more than elements.
var comparableTypes = map[Kind][]string{
	Token: {
		"CodeableConcept", "Coding", "Identifier", "ContactPoint", "code", "string", "boolean", "id", "uri", "canonical",
		"integer", "positiveInt", "unsignedInt",
	},
	Date:      {"date", "dateTime", "instant", "Period", "Timing"},
	String:    {"string", "markdown", "HumanName", "Address"},
	Reference: {"Reference", "canonical", "uri"},
	URI:       {"uri", "url", "canonical", "oid", "uuid"},
	Number:    {"decimal", "integer", "positiveInt", "unsignedInt"},
	Quantity:  {"Quantity", "Age", "Count", "Distance", "Duration", "Money"},
}

//go:generate go run ../generate ../generate/hapi-fhir-validation-resources-r4-8.8.0.jar

// r4Table has a line for each parameter of each type. It consists of type, name, kind, targets and paths.
//
//go:embed r4.tsv
var r4Table string

type parameterKey struct{ resourceType, name string }

// r4Parameters returns R4's parameters by type and name.
var r4Parameters = sync.OnceValue(func() map[parameterKey]Parameter {
	parameters := make(map[parameterKey]Parameter, 2048)
	for line := range strings.Lines(r4Table) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		parameters[parameterKey{columns[0], columns[1]}] = readParameter(columns)
	}
	return parameters
})

// readParameter parses the columns of a line in r4Table.
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

// readPath parses a path such as participant.actor[Patient]:Reference, telecom[system=phone]:ContactPoint or
// status:code@http://hl7.org/fhir/observation-status.
func readPath(text string) resource.Path {
	var p resource.Path
	text, p.Type, _ = strings.Cut(text, ":")
	p.Type, p.System, _ = strings.Cut(p.Type, "@")
	p.Elements = strings.Split(text, ".")
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

// Lookup returns R4's parameter of a resource type. It includes the parameters of all types, such as _id.
func Lookup(resourceType, name string) (Parameter, bool) {
	t := r4Parameters()
	if p, ok := t[parameterKey{resourceType, name}]; ok {
		return p, true
	}
	if p, ok := t[parameterKey{"Resource", name}]; ok {
		return p, true
	}
	if !isDomainResource(resourceType) {
		return Parameter{}, false
	}
	p, ok := t[parameterKey{"DomainResource", name}]
	return p, ok
}

// isDomainResource reports whether a type has the elements common to most types, such as narrative.
func isDomainResource(resourceType string) bool {
	return resourceType != "Binary" && resourceType != "Bundle" && resourceType != "Parameters"
}

// Parameters returns R4's parameters of a resource type that can be evaluated, sorted by name, including those of all types.
func Parameters(resourceType string) (list []Parameter) {
	for k, p := range r4Parameters() {
		own := k.resourceType == resourceType || k.resourceType == "Resource" || k.resourceType == "DomainResource" && isDomainResource(resourceType)
		if own && p.isEvaluable() {
			list = append(list, p)
		}
	}
	sortParameters(list)
	return list
}

func sortParameters(list []Parameter) {
	slices.SortFunc(list, func(a, b Parameter) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
}

// isEvaluable reports whether the parameter can be compared with any value.
func (p Parameter) isEvaluable() bool {
	return len(p.Paths) > 0 && p.Kind != Composite && p.Kind != Special
}

// Kind is the type of a search parameter.
type Kind uint8

// Types of search parameters.
const (
	Number Kind = iota
	Date
	String
	Token
	Reference
	Composite
	Quantity
	URI
	Special
)

var kindNames = [...]string{"number", "date", "string", "token", "reference", "composite", "quantity", "uri", "special"}

// String returns the kind as a FHIR code.
func (k Kind) String() string { return kindNames[k] }

// Parameter is a search parameter of one resource type.
type Parameter struct {
	// Name is the name of the parameter in a search, such as birthdate.
	Name string
	// Kind determines which types of elements are compared, and how.
	Kind Kind
	// Paths are the paths to the searched elements. Empty if the parameter cannot be evaluated: it is a composite, or its
	// FHIRPath expression is more than paths.
	Paths []resource.Path
	// Targets are the target types of a reference. If empty, any type.
	Targets []string
	// IsSiteDefined is true for a parameter defined by a site. The FHIR server's definition may be broader.
	IsSiteDefined bool
}
