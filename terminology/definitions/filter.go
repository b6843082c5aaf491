package definitions

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// hierarchical are the operators that follow the hierarchy instead of testing each concept.
var hierarchical = []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}

// IsHierarchical reports whether a filter follows the hierarchy.
func (f Filter) IsHierarchical() bool { return slices.Contains(hierarchical, f.Op) }

// NoValue is the error for a filter without a value.
func (cs *CodeSystem) NoValue(f Filter) error {
	e := outcome.New(http.StatusUnprocessableEntity, "invalid", "vs-invalid", "UNABLE_TO_HANDLE_SYSTEM_FILTER_WITH_NO_VALUE",
		fmt.Sprintf("The system %s filter with property = %s, op = %s has no value", cs.URL, f.Property, f.Op))
	e.Expression = []string{""} // until it is located
	return e
}

// Related returns the concept that a hierarchical filter names.
func (cs *CodeSystem) Related(f Filter) (c codesystem.Concept, err error) {
	if f.Value == "" {
		return c, cs.NoValue(f)
	}
	if f.Property != "concept" && f.Property != "code" {
		return c, cs.unknownProperty(f)
	}
	c, ok := cs.Concepts.Locate([]byte(f.Value))
	if !ok {
		return c, outcome.Incomplete("not-found", "code system %s has no concept %q, which a filter with op %q names", cs.Canonical(), f.Value, f.Op)
	}
	return c, nil
}

// Meets reports whether a concept is related to another as an operator other than child-of says; related says that it is
// below the other, or for generalizes above. A concept may be below itself, if the hierarchy has a cycle.
func (cs *CodeSystem) Meets(op string, concept, other codesystem.Concept, related bool) bool {
	same := cs.IsSame(concept, other)
	switch op {
	case "descendent-of":
		return related && !same
	case "descendent-leaf":
		return related && !same && len(cs.Concepts.Hierarchy.Children(concept.Number)) == 0
	case "is-not-a":
		return !related && !same
	}
	return related || same
}

// ValueVisitor calls visit with a concept's values of some property until it returns false.
type ValueVisitor func(concept codesystem.Concept, visit func(value []byte) bool)

// ValuesOf returns the visitor for a filter's property: one that every concept has, one of the hierarchy, or one of the
// code system.
func (cs *CodeSystem) ValuesOf(f Filter) (ValueVisitor, error) {
	switch f.Property {
	case "concept", "code":
		return func(concept codesystem.Concept, visit func([]byte) bool) { visit(cs.Concepts.Code(concept)) }, nil
	case "display":
		return func(concept codesystem.Concept, visit func([]byte) bool) {
			if _, display, _ := cs.Concepts.Concept(concept); display != nil {
				visit(display)
			}
		}, nil
	case "parent":
		return cs.relatedCodes(cs.Concepts.Hierarchy.Parents), nil
	case "child":
		return cs.relatedCodes(cs.Concepts.Hierarchy.Children), nil
	}
	property := slices.IndexFunc(cs.Concepts.Filters.Properties(), func(p codesystem.Property) bool { return p.Code == f.Property })
	if property < 0 {
		return nil, cs.unknownProperty(f)
	}
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		cs.Concepts.Filters.Values(concept, property, visit)
	}, nil
}

func (cs *CodeSystem) relatedCodes(of func(concept uint32) []uint32) ValueVisitor {
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		for _, other := range of(concept.Number) {
			if !visit(cs.Concepts.Code(codesystem.At(other))) {
				return
			}
		}
	}
}

func (cs *CodeSystem) unknownProperty(f Filter) error {
	return outcome.Incomplete("not-supported", "code system %s has no property %q that a filter with op %q could use", cs.Canonical(), f.Property, f.Op)
}
