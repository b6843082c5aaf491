package snomed

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// Properties that only filters have.
const (
	propertyConstraint  = "constraint"  // = an expression constraint
	propertyExpression  = "expression"  // an older name of constraint
	propertyExpressions = "expressions" // = whether post-coordinated expressions are included
	propertyRefset      = "refset"      // exists: concepts that are reference sets with members
)

// EvaluateFilter implements [codesystem.FilterEvaluator] for filters on reference sets and expression constraints.
func (s *System) EvaluateFilter(property, op, value string, spend func(steps int) error) (set bitset.Set, ok bool, err error) {
	switch {
	case (property == propertyConstraint || property == propertyExpression) && op == "=":
		set, err = s.evaluateECL(value, spend)
		return set, true, err
	case property == propertyExpressions && op == "=": // about expressions only
		return s.all(), true, spend(s.Len() / 64)
	case property == propertyRefset && op == "exists":
		return s.withRefsets(), true, spend(len(s.refsets) + s.Len()/64)
	case (property == "concept" || property == "code") && op == "in":
		x := s.refset(value)
		if x == nil {
			return nil, false, nil // a list of codes
		}
		return x.members(s.Len()), true, spend(len(x.component) + s.Len()/64)
	}
	return nil, false, nil
}

// all returns the set of all concepts.
func (s *System) all() bitset.Set {
	set := bitset.New(s.Len())
	for concept := range uint32(s.Len()) {
		set.Add(concept)
	}
	return set
}

// withRefsets returns the concepts that are reference sets with members.
func (s *System) withRefsets() bitset.Set {
	set := bitset.New(s.Len())
	for id := range s.refsets {
		if concept := s.concept(id); concept != none {
			set.Add(concept)
		}
	}
	return set
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
