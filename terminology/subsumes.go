package terminology

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Subsumes answers CodeSystem/$subsumes: how concept a relates to b, as a code of
// http://hl7.org/fhir/concept-subsumption-outcome. If b has no System, it has that of a. It fails as [Library.Expand]
// does.
func (l *Library) Subsumes(ctx context.Context, a, b parameters.Coding) (outcome string, err error) {
	if b.System == "" {
		b.System, b.Version = a.System, a.Version
	}
	l.set.Use(func() { outcome, err = subsumes(l.set, &a, &b, budget.Of(ctx, l.set.Bounds.Gathered)) })
	return outcome, err
}

func subsumes(l *definitions.Set, a, b *parameters.Coding, budget *budget.Budget) (string, error) {
	first, err := l.Systems.Concept(a)
	if err != nil {
		return "", err
	}
	second, err := l.Systems.Concept(b)
	if err != nil {
		return "", err
	}
	if first.CodeSystem != second.CodeSystem {
		return "", outcome.BadRequest("invalid", "the two codes must be of the same version of one code system")
	}
	return subsumption(l.Systems.CodeSystems[first.CodeSystem], first.At, second.At, budget.Spend)
}

// subsumption returns how two concepts relate (http://hl7.org/fhir/concept-subsumption-outcome), given the code
// system's hierarchyMeaning.
func subsumption(cs *definitions.CodeSystem, a, b codesystem.Concept, spend func(n int) error) (string, error) {
	switch {
	case cs.IsSame(a, b):
		return "equivalent", nil
	case cs.NotSubsuming:
		return "not-subsumed", nil
	}
	above, err := cs.Concepts.Hierarchy.Above(b.Number, spend)
	if err == nil && above.Has(a.Number) {
		return "subsumes", nil
	}
	if err == nil {
		above, err = cs.Concepts.Hierarchy.Above(a.Number, spend)
	}
	if err == nil && above.Has(b.Number) {
		return "subsumed-by", nil
	}
	return "not-subsumed", err
}
