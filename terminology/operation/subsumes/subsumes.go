// Package subsumes implements CodeSystem/$subsumes, which returns the relationship between two codes of a code system.
package subsumes

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	api.Register(api.Operation{Type: "CodeSystem", Name: "subsumes", HasInstanceLevel: true, Handle: handle})
}

func handle(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	p, err := c.Parameters(inputs)
	if err != nil {
		return nil, nil, err
	}
	first, err := p.Coding("A")
	if err != nil {
		return nil, nil, err
	}
	second, err := p.Coding("B")
	if err != nil {
		return nil, nil, err
	}
	if l, err = c.WithRequestResources(l, p); err != nil {
		return nil, nil, err
	}
	if p.ID != "" {
		if err := l.Definitions().Systems.CompleteCodings(p.ID, &first, &second); err != nil {
			return nil, nil, err
		}
	}
	relation, err := Run(&c.Budget, l, first, second)
	if err != nil {
		return nil, nil, err
	}
	out := parameters.NewWriter(nil)
	out.Text("outcome", "valueCode", relation)
	return out.End(), nil, nil
}

// Run performs CodeSystem/$subsumes. It returns the relationship of a to b as a code of
// http://hl7.org/fhir/concept-subsumption-outcome. b.System defaults to a.System. Errors are those of
// [terminology.Library.Expand].
func Run(ctx context.Context, l *terminology.Library, a, b parameters.Coding) (outcome string, err error) {
	if b.System == "" {
		b.System, b.Version = a.System, a.Version
	}
	set := l.Definitions()
	set.Use(func() { outcome, err = subsumes(set, &a, &b, budget.FromContext(ctx, set.Bounds.VisitedCodes)) })
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
		return "", outcome.BadRequest("invalid", "the two codes must belong to the same version of a code system")
	}
	return subsumption(l.Systems.CodeSystems[first.CodeSystem], first.LocatedConcept, second.LocatedConcept, budget.Charge)
}

// subsumption returns the relationship of two concepts (http://hl7.org/fhir/concept-subsumption-outcome), taking
// hierarchyMeaning into account.
func subsumption(cs *definitions.CodeSystem, a, b codesystem.Concept, spend func(n int) error) (string, error) {
	switch {
	case cs.IsSame(a, b):
		return "equivalent", nil
	case cs.NotSubsuming:
		return "not-subsumed", nil
	}
	below, err := isBelow(cs, b, a, spend)
	above := false
	if isExpression := a.Code != nil || b.Code != nil; err == nil && (!below || isExpression) { // expressions may be equivalent
		above, err = isBelow(cs, a, b, spend)
	}
	switch {
	case err != nil:
		return "", err
	case below && above:
		return "equivalent", nil
	case below:
		return "subsumes", nil
	case above:
		return "subsumed-by", nil
	}
	return "not-subsumed", nil
}

// isBelow reports whether general subsumes special. Either may be an expression.
func isBelow(cs *definitions.CodeSystem, special, general codesystem.Concept, spend func(n int) error) (bool, error) {
	if special.Code != nil || general.Code != nil {
		code := string(cs.Concepts.Code(general))
		if below, ok, err := cs.Concepts.FilterEvaluator.MatchesFilter(special, "concept", "is-a", code, spend); ok || err != nil {
			return below, err
		}
	}
	if general.Code != nil {
		return false, nil
	}
	above, err := cs.Concepts.Hierarchy.Above(special.Number, spend)
	return err == nil && above.Has(general.Number), err
}
