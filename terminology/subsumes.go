package terminology

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// Subsumes answers CodeSystem/$subsumes: how concept a relates to b, as a code of
// http://hl7.org/fhir/concept-subsumption-outcome. If b has no System, it has that of a. It fails as [Library.Expand]
// does.
func (l *Library) Subsumes(ctx context.Context, a, b Coding) (outcome string, err error) {
	if b.System == "" {
		b.System, b.Version = a.System, a.Version
	}
	l.set.use(func() { outcome, err = subsumes(l.set, &a, &b, budgetOf(ctx, l.set.bounds.gathered)) })
	return outcome, err
}

func subsumes(l *Set, a, b *Coding, budget *budget) (string, error) {
	first, err := l.concept(a)
	if err != nil {
		return "", err
	}
	second, err := l.concept(b)
	if err != nil {
		return "", err
	}
	if first.codeSystem != second.codeSystem {
		return "", badRequest("invalid", "the two codes must be of the same version of one code system")
	}
	return subsumption(l.codeSystems[first.codeSystem], first.at, second.at, budget.spend)
}

// subsumption returns how two concepts relate (http://hl7.org/fhir/concept-subsumption-outcome), given the code
// system's hierarchyMeaning.
func subsumption(cs *codeSystem, a, b codesystem.Concept, spend func(n int) error) (string, error) {
	switch {
	case cs.isSame(a, b):
		return "equivalent", nil
	case cs.notSubsuming:
		return "not-subsumed", nil
	}
	above, err := cs.concepts.Hierarchy.Above(b.Number, spend)
	if err == nil && above.Has(a.Number) {
		return "subsumes", nil
	}
	if err == nil {
		above, err = cs.concepts.Hierarchy.Above(a.Number, spend)
	}
	if err == nil && above.Has(b.Number) {
		return "subsumed-by", nil
	}
	return "not-subsumed", err
}
