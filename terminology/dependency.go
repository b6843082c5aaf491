package terminology

import (
	"cmp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// dependencies are other elements that a request for a translation tells of, with their values (R4
// ConceptMap/$translate, parameter dependency).
type dependencies struct {
	elements map[string]bool       // those that are told of
	values   map[mapAttribute]bool // what they are, each with and without its system
}

// take takes over one dependency, with the names of R4 or of R5.
func (d *dependencies) take(in *input) error {
	var element string
	var values []mapAttribute
	for i := range in.parts {
		part := &in.parts[i]
		switch part.name {
		case "element", "attribute":
			element = part.value
		case "concept", "value":
			list, err := part.attributeValues()
			if err != nil {
				return err
			}
			values = append(values, list...)
		}
	}
	if element == "" {
		return badRequest("required", "each parameter dependency needs the part element")
	}
	if d.elements == nil {
		d.elements, d.values = make(map[string]bool), make(map[mapAttribute]bool)
	}
	d.elements[element] = true
	for _, v := range values {
		v.property = element
		d.values[v] = true
		v.system = ""
		d.values[v] = true
	}
	return nil
}

// attributeValues reads the value of a dependency: a CodeableConcept, a Coding, or a primitive.
func (in *input) attributeValues() (list []mapAttribute, err error) {
	if in.complex == nil {
		return []mapAttribute{{value: in.value}}, nil
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
			list = append(list, mapAttribute{system: c.System, value: c.Code})
		}
	}
	return list, err
}

// conceptText returns CodeableConcept.text.
func conceptText(concept jsontext.Value) (text string, err error) {
	r := fhirjson.ReaderOf(concept)
	err = r.Object(func(name []byte) error {
		if string(name) == "text" {
			return r.ReadString(&text)
		}
		return r.Skip()
	})
	if err != nil {
		return "", badRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return text, nil
}

// contradict reports whether a target depends on another value of an element than the one that the request tells
// (R4 ConceptMap.group.element.target.dependsOn). Where the request does not tell of the element, the match says what
// it depends on.
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
