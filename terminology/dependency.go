package terminology

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// takeDependency takes over one dependency, with the names of R4 or of R5.
func (t *translationReader) takeDependency(in *input) error {
	var d Dependency
	for i := range in.parts {
		part := &in.parts[i]
		switch part.name {
		case "element", "attribute":
			d.Element = part.value
		case "concept", "value":
			list, err := part.dependencyValues()
			if err != nil {
				return err
			}
			d.Values = append(d.Values, list...)
		}
	}
	if d.Element == "" {
		return badRequest("required", "each parameter dependency needs the part element")
	}
	t.translation.Dependencies = append(t.translation.Dependencies, d)
	return nil
}

// dependencies are the elements that a request says a translation may depend on, with their values (R4
// ConceptMap/$translate, parameter dependency).
type dependencies struct {
	elements map[string]bool       // those that are told of
	values   map[mapAttribute]bool // what they are, each with and without its system
}

// newDependencies prepares dependencies for being compared.
func newDependencies(list []Dependency) dependencies {
	d := dependencies{elements: make(map[string]bool), values: make(map[mapAttribute]bool)}
	for i := range list {
		d.elements[list[i].Element] = true
		for _, c := range list[i].Values {
			d.values[mapAttribute{property: list[i].Element, system: c.System, value: c.Code}] = true
			d.values[mapAttribute{property: list[i].Element, value: c.Code}] = true
		}
	}
	return d
}

// dependencyValues reads the value of a dependency: a CodeableConcept, a Coding, or a primitive.
func (in *input) dependencyValues() (list []Coding, err error) {
	if in.complex == nil {
		return []Coding{{Code: in.value}}, nil
	}
	codings, err := parseConcept(in.complex)
	if err != nil {
		return nil, err
	}
	single, err := parseCoding(in.complex, "dependency")
	if err != nil {
		return nil, err
	}
	text, err := conceptText(in.complex)
	for _, c := range append(codings, single, Coding{Code: text}) {
		if c.Code != "" {
			list = append(list, c)
		}
	}
	return list, err
}

// conceptText returns CodeableConcept.text.
func conceptText(concept jsontext.Value) (text string, err error) {
	r := fhirjson.ReaderOf(concept)
	err = r.Strings(fhirjson.String{Name: "text", Into: &text})
	if err != nil {
		return "", badRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return text, nil
}

// contradict reports whether a target depends on a value that differs from the one in the request (R4
// ConceptMap.group.element.target.dependsOn). An element that the request does not name contradicts nothing.
func (d *dependencies) contradict(target *mapTarget) bool {
	for i := range target.dependsOn {
		on := &target.dependsOn[i]
		system, _ := splitCanonical(on.system)
		if d.elements[on.property] && !d.values[mapAttribute{property: on.property, system: system, value: cmp.Or(on.value, on.display)}] {
			return true
		}
	}
	return false
}
