package terminology

import "context"

// Subsumes answers CodeSystem/$subsumes: how concept a relates to b, as a code of
// http://hl7.org/fhir/concept-subsumption-outcome. If b has no System, it has that of a. It fails as [Library.Expand]
// does.
func (l *Library) Subsumes(ctx context.Context, a, b Coding) (outcome string, err error) {
	if b.System == "" {
		b.System, b.Version = a.System, a.Version
	}
	l.use(func() { outcome, err = l.subsumes(&a, &b, l.budget(ctx)) })
	return outcome, err
}

func (l *Library) subsumes(a, b *Coding, budget *budget) (string, error) {
	cs, first, err := l.concept(a)
	if err != nil {
		return "", err
	}
	other, second, err := l.concept(b)
	if err != nil {
		return "", err
	}
	if cs != other {
		return "", badRequest("invalid", "the two codes must be of the same version of one code system")
	}
	return l.codeSystems[cs].subsumption(first, second, budget.spend)
}

// subsumption returns how two concepts relate (http://hl7.org/fhir/concept-subsumption-outcome), given the code
// system's hierarchyMeaning.
func (cs *codeSystem) subsumption(a, b uint32, spend func(n int) error) (string, error) {
	switch {
	case a == b:
		return "equivalent", nil
	case cs.notSubsuming:
		return "not-subsumed", nil
	}
	above, err := cs.Above(b, spend)
	if err == nil && above.Has(a) {
		return "subsumes", nil
	}
	if err == nil {
		above, err = cs.Above(a, spend)
	}
	if err == nil && above.Has(b) {
		return "subsumed-by", nil
	}
	return "not-subsumed", err
}
