package terminology

import (
	"cmp"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// takeDependency reads one parameter dependency, with the names of R4 or R5.
func (t *translationReader) takeDependency(in *input) error {
	var d Dependency
	for i := range in.parts {
		part := &in.parts[i]
		switch part.name {
		case "element", "attribute":
			d.Element = part.value
		case "concept", "value":
			list, err := dependencyValues(part)
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

// dependencies are the elements that a translation may depend on (R4 ConceptMap/$translate, parameter dependency).
type dependencies struct {
	elements map[string]bool
	values   map[mapAttribute]bool // each with and without its system
}

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

// dependencyValues reads the value of a dependency: a CodeableConcept with its text, a Coding, or a primitive.
func dependencyValues(in *input) ([]Coding, error) {
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
	var text string
	if err := fhirjson.ReaderOf(in.complex).Strings(fhirjson.String{Name: "text", Into: &text}); err != nil {
		return nil, badRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return slices.DeleteFunc(append(codings, single, Coding{Code: text}), func(c Coding) bool { return c.Code == "" }), nil
}

// contradict reports whether a target depends on a value (R4 ConceptMap.group.element.target.dependsOn) that differs from
// the one in the request. An element that the request does not name contradicts nothing.
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
