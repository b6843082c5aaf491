package compose

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// hierarchical are the operators that follow the hierarchy instead of testing each concept.
var hierarchical = []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}

// isHierarchical reports whether a filter follows the hierarchy.
func isHierarchical(f definitions.Filter) bool { return slices.Contains(hierarchical, f.Op) }

// noValue is the error for a filter without a value.
func noValue(cs *definitions.CodeSystem, f definitions.Filter) error {
	e := outcome.New(http.StatusUnprocessableEntity, "invalid", "vs-invalid", "UNABLE_TO_HANDLE_SYSTEM_FILTER_WITH_NO_VALUE",
		fmt.Sprintf("The system %s filter with property = %s, op = %s has no value", cs.URL, f.Property, f.Op))
	e.Expression = []string{""} // until it is located
	return e
}

// namedBy returns the concept that a hierarchical filter names.
func namedBy(cs *definitions.CodeSystem, f definitions.Filter) (c codesystem.Concept, err error) {
	if f.Value == "" {
		return c, noValue(cs, f)
	}
	if f.Property != "concept" && f.Property != "code" {
		return c, unknownProperty(cs, f)
	}
	c, ok := cs.Concepts.Locate([]byte(f.Value))
	if !ok {
		return c, outcome.Incomplete("not-found", "code system %s has no concept %q, which a filter with op %q names", cs.Canonical(), f.Value, f.Op)
	}
	return c, nil
}

// meets reports whether a concept is related to another as an operator other than child-of says; related says that it is
// below the other, or for generalizes above. A concept may be below itself, if the hierarchy has a cycle.
func meets(cs *definitions.CodeSystem, op string, concept, other codesystem.Concept, related bool) bool {
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

// valueVisitor calls visit with a concept's values of some property until it returns false.
type valueVisitor func(concept codesystem.Concept, visit func(value []byte) bool)

// valuesOf returns the visitor for a filter's property: one that every concept has, one of the hierarchy, or one of the
// code system, with its index there; -1 for another.
func valuesOf(cs *definitions.CodeSystem, f definitions.Filter) (visitor valueVisitor, property int, err error) {
	switch f.Property {
	case "concept", "code":
		return func(concept codesystem.Concept, visit func([]byte) bool) { visit(cs.Concepts.Code(concept)) }, -1, nil
	case "display":
		return func(concept codesystem.Concept, visit func([]byte) bool) {
			if _, display, _ := cs.Concepts.Concept(concept); display != nil {
				visit(display)
			}
		}, -1, nil
	case "parent":
		return relatedCodes(cs, cs.Concepts.Hierarchy.Parents), -1, nil
	case "child":
		return relatedCodes(cs, cs.Concepts.Hierarchy.Children), -1, nil
	}
	property = slices.IndexFunc(cs.Concepts.Filters.Properties(), func(p codesystem.Property) bool { return p.Code == f.Property })
	if property < 0 {
		return nil, -1, unknownProperty(cs, f)
	}
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		cs.Concepts.Filters.Values(concept, property, visit)
	}, property, nil
}

func relatedCodes(cs *definitions.CodeSystem, of func(concept uint32) []uint32) valueVisitor {
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		for _, other := range of(concept.Number) {
			if !visit(cs.Concepts.Code(codesystem.At(other))) {
				return
			}
		}
	}
}

func unknownProperty(cs *definitions.CodeSystem, f definitions.Filter) error {
	return outcome.Incomplete("not-supported", "code system %s has no property %q that a filter with op %q could use", cs.Canonical(), f.Property, f.Op)
}

// located completes the Expression of a fault in a filter, from the filter outwards, up to its value set.
func located(err error, list string, i int) error {
	if e, ok := errors.AsType[*outcome.Error](err); ok && len(e.Expression) == 1 && !strings.HasPrefix(e.Expression[0], "ValueSet.") {
		e.Expression[0] = strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", list, i, e.Expression[0]), ".")
	}
	return err
}
