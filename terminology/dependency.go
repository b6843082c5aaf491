package terminology

import (
	"cmp"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// dependencies are the elements that a translation may depend on (R4 ConceptMap/$translate, parameter dependency).
type dependencies struct {
	elements map[string]bool
	values   map[definitions.MapAttribute]bool // each with and without its system
}

func newDependencies(list []Dependency) dependencies {
	d := dependencies{elements: make(map[string]bool), values: make(map[definitions.MapAttribute]bool)}
	for i := range list {
		d.elements[list[i].Element] = true
		for _, c := range list[i].Values {
			d.values[definitions.MapAttribute{Property: list[i].Element, System: c.System, Value: c.Code}] = true
			d.values[definitions.MapAttribute{Property: list[i].Element, Value: c.Code}] = true
		}
	}
	return d
}

// contradict reports whether a target depends on a value (R4 ConceptMap.group.element.target.dependsOn) that differs from
// the one in the request. An element that the request does not name contradicts nothing.
func (d *dependencies) contradict(target *definitions.MapTarget) bool {
	for i := range target.DependsOn {
		on := &target.DependsOn[i]
		system, _ := outcome.Split(on.System)
		if d.elements[on.Property] && !d.values[definitions.MapAttribute{Property: on.Property, System: system, Value: cmp.Or(on.Value, on.Display)}] {
			return true
		}
	}
	return false
}
