package snomed

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// expressionContent is the content of an edition with an expression as an additional concept. The expression is a child of
// another additional concept, which is a child of the focus concepts: as in HL7's tests, an expression is a descendant of its
// focus concepts, but not a child.
type expressionContent struct {
	*eclContent
	expression    *expression
	between       uint32 // the number of the concept between the expression and its focus concepts
	relationships ecl.Relationships
}

// Each step of copying relationships copies rowsPerStep rows.
const rowsPerStep = 8

// newExpressionContent returns content with an expression.
func newExpressionContent(c *eclContent, e *expression, spend func(steps int) error) (*expressionContent, error) {
	n, rows := uint32(c.System.Len()), c.System.relationships(e)
	x := &expressionContent{eclContent: c, expression: e, between: n}
	old, first := &c.relationships, uint32(len(c.relationships.Source))
	if err := spend(c.System.Len() + len(old.Source)/rowsPerStep); err != nil {
		return nil, err
	}
	r := &x.relationships
	r.Source, r.Type = slices.Clone(old.Source), slices.Clone(old.Type)
	r.Destination, r.Group = slices.Clone(old.Destination), slices.Clone(old.Group)
	for _, row := range rows {
		r.Source, r.Type = append(r.Source, n+1), append(r.Type, row.kind)
		r.Destination, r.Group = append(r.Destination, row.destination), append(r.Group, row.group)
	}
	r.From = append(slices.Clone(old.From), first, first+uint32(len(rows)))
	r.To, r.ByDestination = groupByOwner(int(n)+2, r.Destination)
	return x, nil
}

// Len and the following methods replace those of the edition.
func (x *expressionContent) Len() int                          { return int(x.between) + 2 }
func (x *expressionContent) Relationships() *ecl.Relationships { return &x.relationships }

func (x *expressionContent) ID(concept uint32) uint64 {
	if concept >= x.between {
		return 0
	}
	return x.eclContent.ID(concept)
}

func (x *expressionContent) Active() bitset.Set {
	active := bitset.New(x.Len())
	copy(active, x.active)
	active.Add(x.between)
	active.Add(x.between + 1)
	return active
}

func (x *expressionContent) Parents(concept uint32) []uint32 {
	switch concept {
	case x.between:
		return x.expression.focus
	case x.between + 1:
		return []uint32{x.between}
	}
	return x.eclContent.Parents(concept)
}

func (x *expressionContent) Children(concept uint32) []uint32 {
	switch {
	case concept == x.between:
		return []uint32{x.between + 1}
	case concept > x.between:
		return nil
	case slices.Contains(x.expression.focus, concept):
		return append(slices.Clip(x.eclContent.Children(concept)), x.between)
	}
	return x.eclContent.Children(concept)
}

func (x *expressionContent) EachDescription(concept uint32, visit func(d *ecl.Description) bool) {
	if concept < x.between {
		x.eclContent.EachDescription(concept, visit)
	}
}

func (x *expressionContent) FindWords(words []string, spend func(int) error) (bitset.Set, bool, error) {
	found, ok, err := x.eclContent.FindWords(words, spend)
	return append(found, 0)[:(x.Len()+63)/64], ok, err
}

func (x *expressionContent) Metadata(concept uint32) ecl.Metadata {
	if concept < x.between {
		return x.eclContent.Metadata(concept)
	}
	return ecl.Metadata{}
}

// MatchesFilter implements [codesystem.FilterEvaluator] for expressions.
func (s *System) MatchesFilter(c codesystem.Concept, property, op, value string, spend func(steps int) error) (matches, ok bool, err error) {
	e, err := s.parseExpression(c.Code)
	if err != nil {
		return false, true, nil //nolint:nilerr // an invalid expression matches nothing
	}
	switch {
	case (property == propertyConstraint || property == propertyExpression) && op == "=":
		matches, err = s.satisfies(e, value, spend)
		return matches, true, err
	case property == propertyExpressions && op == "=":
		return value == "true", true, nil
	case property == propertyRefset, property == "parent", property == "child", op == "child-of", op == "generalizes", op == "descendent-leaf", op == "in" && s.refset(value) != nil:
		return false, true, nil
	case op == "is-a", op == "descendent-of", op == "is-not-a":
		general, found := s.Table.Locate([]byte(value))
		if !found {
			return false, false, nil
		}
		matches, err = s.subsumesExpression(general.Number, e, spend)
		return matches != (op == "is-not-a"), true, err
	}
	return false, false, nil
}

// satisfies reports whether an expression satisfies an expression constraint.
func (s *System) satisfies(e *expression, constraint string, spend func(steps int) error) (bool, error) {
	q, err := ecl.Parse(constraint)
	if err != nil {
		return false, newECLError(constraint, err)
	}
	x, err := newExpressionContent(s.content(), e, spend)
	if err != nil {
		return false, err
	}
	set, err := evaluate(ecl.NewEvaluator(x, 0), constraint, q, spend)
	return err == nil && set.Has(x.between+1), err
}
