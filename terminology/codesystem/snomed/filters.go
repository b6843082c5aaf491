package snomed

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Properties that only filters have.
const (
	propertyConstraint  = "constraint"  // = an expression constraint
	propertyExpression  = "expression"  // an older name of constraint
	propertyExpressions = "expressions" // = whether post-coordinated expressions are included
	propertyRefset      = "refset"      // exists: whether a concept is a reference set with rows, for concepts or not
)

// EvaluateFilter implements [codesystem.FilterEvaluator] for filters on reference sets and expression constraints.
func (s *System) EvaluateFilter(property, op, value string, spend func(steps int) error) (set bitset.Set, ok bool, err error) {
	switch {
	case (property == propertyConstraint || property == propertyExpression) && op == "=":
		set, err = s.constraints.evaluate(value, spend)
		return set, true, err
	case property == propertyExpressions && op == "=": // about expressions only
		if _, err = readBoolean(property, op, value); err != nil {
			return nil, true, err
		}
		return s.snapshot.complement(bitset.New(s.Len())), true, spend(s.Len() / 64)
	case property == propertyRefset && op == "exists":
		set, err = s.snapshot.withRefsets(), spend(len(s.snapshot.refsets)+s.Len()/64)
		if isRefset, invalid := readBoolean(property, op, value); !isRefset {
			return s.snapshot.complement(set), true, cmp.Or(invalid, err)
		}
		return set, true, err
	case (property == "concept" || property == "code") && (op == "in" || op == "not-in"):
		x := s.snapshot.refset(value)
		if x == nil { // a list of codes
			return nil, false, s.snapshot.checkList(value, spend)
		}
		set, err = x.members(s.Len()), spend(len(x.component)+s.Len()/64)
		if op == "not-in" {
			set = s.snapshot.complement(set)
		}
		return set, true, err
	}
	return nil, false, s.properties.checkFilter(property, false)
}

// MatchesFilter implements [codesystem.FilterEvaluator] for expressions.
func (s *System) MatchesFilter(c codesystem.Concept, property, op, value string, spend func(steps int) error) (matches, ok bool, err error) {
	e, ok := s.snapshot.expressionOf(c)
	if !ok {
		return false, true, nil // an invalid expression matches nothing
	}
	switch {
	case (property == propertyConstraint || property == propertyExpression) && op == "=":
		matches, err = s.constraints.satisfies(e, value, spend)
		return matches, true, err
	case property == propertyExpressions && op == "=":
		matches, err = readBoolean(property, op, value)
		return matches, true, err
	case property == propertyRefset && op == "exists":
		matches, err = readBoolean(property, op, value)
		return !matches && err == nil, true, err
	case property == "parent", property == "child", op == "child-of", op == "descendent-leaf":
		return false, true, nil
	case (op == "in" || op == "not-in") && s.snapshot.refset(value) != nil:
		return op == "not-in", true, nil
	case op == "is-a", op == "descendent-of", op == "is-not-a", op == "generalizes":
		return s.snapshot.hasRelation(e, op, value, spend)
	case property == "inactive" && op == "=":
		return strconv.FormatBool(s.snapshot.inactiveFocus(e) != none) == value, true, nil
	}
	return false, false, s.properties.checkFilter(property, true)
}

// hasRelation reports whether an expression has a hierarchical relation to a concept or to another expression. ok is false if
// value is neither.
func (s *snapshot) hasRelation(e *expression, op, value string, spend func(steps int) error) (matches, ok bool, err error) {
	c, ok := s.locate([]byte(value))
	if !ok {
		return false, false, nil
	}
	other, _ := s.expressionOf(c)
	x := newSubsumption(s, spend)
	switch op {
	case "generalizes":
		matches = x.subsumes(e, other)
	case "descendent-of": // an expression is below a concept that is equivalent to it
		matches = x.subsumes(other, e) && (c.Code == nil || !x.subsumes(e, other))
	default:
		matches = x.subsumes(other, e) != (op == "is-not-a")
	}
	return matches && x.err == nil, true, x.err
}

// readBoolean reads the value of a filter that is true or false.
func readBoolean(property, op, value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, outcome.Unprocessable("invalid", "the filter on %s of SNOMED CT with op %s has the value %q, not true or false", property, op, value)
	}
	return value == "true", nil
}

// checkFilter returns an error for unsupported filters. A filter on normal forms would compute them for all concepts. For an
// expression, a filter on attributes, inactive or sufficientlyDefined would require the normal form of the expression.
func (p *properties) checkFilter(property string, isExpression bool) error {
	at := slices.IndexFunc(p.list, func(x codesystem.Property) bool { return x.Code == property })
	isAttribute := at >= fixedProperties && at < fixedProperties+len(p.snapshot.attributes.kinds)
	switch {
	case at == propertyNormalForm || at == propertyNormalFormTerse:
		return outcome.NewIncomplete("not-supported", "SNOMED CT has no filter on %s; use an expression constraint", property)
	case isExpression && (isAttribute || at == propertyInactive || at == propertyDefined):
		return outcome.NewIncomplete("not-supported", "the filter on %s is not supported for expressions of SNOMED CT; use an expression constraint", property)
	}
	return nil
}

// checkList returns an error for a list of codes that is the identifier of a reference set of another edition.
func (s *snapshot) checkList(value string, spend func(steps int) error) error {
	if _, ok := parseSCTID([]byte(value)); !ok {
		return nil
	}
	if c, ok := s.table.Locate([]byte(value)); ok {
		above, err := s.table.Above(c.Number, spend)
		if root := s.concept(foundationRefsets); err != nil || root == none || !above.Has(root) {
			return err
		}
	}
	return outcome.NewIncomplete("not-found", "SNOMED CT %s has no reference set %s", s.edition.versionURI(), value)
}

// members returns the concepts with an active row, of n concepts.
func (x *refset) members(n int) bitset.Set {
	set := bitset.New(n)
	for i, component := range x.component {
		if x.active[i] {
			set.Add(component)
		}
	}
	return set
}
