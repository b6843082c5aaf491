package validate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// newValidator prepares validation against a value set, or against code systems if it is nil.
func newValidator(l *definitions.Set, vs *definitions.ValueSet, q *Validation, b *budget.Budget) (*validator, error) {
	named, language := q.Supplements, q.Language.Preferred(&definitions.ValueSet{})
	if vs != nil {
		defaults := expansion.Query{Rules: q.Rules}
		if err := defaults.Adopt(vs.Defaults); err != nil {
			return nil, err
		}
		q.Rules, language, named = defaults.Rules, q.Language.Preferred(vs), slices.Concat(named, vs.Supplements)
	}
	found := new(notes)
	versions := versionChooser{systems: &l.Systems, rules: &q.Rules, inValueSet: vs != nil}
	v := &validator{codings: slices.Clone(q.Codings), checks: codingValidator{
		notes: found, validation: q, library: l, valueSet: vs, budget: b, supplements: named,
		candidates: candidateFinder{library: l, valueSet: vs, rules: &q.Rules, budget: b, versions: versions, memberOnly: q.MembershipOnly},
		displays:   displayChecker{notes: found, language: language, lenient: q.LenientDisplay},
	}}
	if language != "" {
		v.checks.displays.languages = codesystem.ParseLanguages(language)
	}
	return v, l.Systems.CheckSupplements(named)
}

func (v *validator) result() (*ValidationResult, error) {
	results, err := v.checkCodings()
	if err != nil {
		if err := v.missingValueSet(err); err != nil {
			return nil, err
		}
		return v.summarize(nil), nil
	}
	member := func(d codingResult) bool { return d.member }
	if v.checks.isConcept() && v.checks.valueSet != nil && !slices.ContainsFunc(results, member) && !v.onlyVersions() && !noCodes(v.codings) {
		v.checks.notes.note("error", "code-invalid", "not-in-vs", "TX_GENERAL_CC_ERROR_MESSAGE", nil, "", true,
			fmt.Sprintf("No valid coding was found for the value set '%s'", v.checks.valueSet.DisplayName()))
	}
	if v.checks.valueSet != nil {
		v.standings(results)
	} else if len(results) == 0 {
		v.checks.notes.note("error", "code-invalid", "invalid-code", "", nil, "", true, "There is no coding of the code system")
	}
	return v.summarize(results), nil
}

func (v *validator) checkCodings() (list []codingResult, err error) {
	if v.checks.validation.InferSystem && v.checks.valueSet != nil && len(v.codings) == 1 && v.codings[0].System == "" {
		if err := v.infer(&v.codings[0]); err != nil {
			return nil, err
		}
		if v.codings[0].System == "" {
			return []codingResult{{coding: &v.codings[0]}}, nil
		}
	}
	for i := range v.codings {
		d, err := v.checks.validate(&v.codings[i])
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// noCodes reports whether there are codings but none has a code.
func noCodes(codings []parameters.Coding) bool {
	return len(codings) > 0 && !slices.ContainsFunc(codings, func(c parameters.Coding) bool { return c.Code != "" })
}

// infer finds the system of a code from the value set.
func (v *validator) infer(c *parameters.Coding) error {
	systems, err := v.systemsOf(c)
	if err != nil {
		return v.missingValueSet(err)
	}
	if len(systems) == 1 {
		c.System = systems[0]
		return nil
	}
	id, reason := "UNABLE_TO_INFER_CODESYSTEM", "value set expansion has no matches"
	if len(systems) > 1 {
		slices.Sort(systems)
		id, reason = "Unable_to_resolve_system__value_set_has_multiple_matches", "value set expansion has multiple matches: ["+strings.Join(systems, ", ")+"]"
	}
	v.checks.notInValueSet(c)
	v.checks.notes.note("error", "not-found", "cannot-infer", id, c, "code", true, fmt.Sprintf(
		"The System URI could not be determined for the code '%s' in the ValueSet '%s': %s", c.Code, v.checks.valueSet.Canonical(), reason))
	return nil
}

// missingValueSet turns the error for a missing imported value set into a note. It returns any other error.
func (v *validator) missingValueSet(err error) error {
	var e *outcome.Error
	if !errors.As(err, &e) || len(e.Missing) == 0 || e.Missing[0].Kind != "ValueSet" {
		return err
	}
	v.checks.absent.valueSets = append(v.checks.absent.valueSets, e.Missing...)
	id, text := "Unable_to_resolve_value_Set_", fmt.Sprintf("A definition for the value Set '%s' could not be found", e.Missing[0].Canonical)
	if e.MessageID == "" { // the value set is here, but not its content
		id, text = "", e.Text
	}
	v.checks.notes.note("error", "not-found", "not-found", id, nil, "", true, text)
	return nil
}

// InValueSet answers ValueSet/$validate-code.
func InValueSet(l *definitions.Set, expansions *compose.CodeListCache, q Validation, b *budget.Budget) (*ValidationResult, error) {
	l, vs, err := expansions.ValueSetFor(l, &q.ValueSetRef, &q.Rules, b)
	if err != nil {
		return nil, err
	}
	return run(l, expansions, vs, &q, b)
}

// InCodeSystem answers CodeSystem/$validate-code.
func InCodeSystem(l *definitions.Set, q Validation, b *budget.Budget) (*ValidationResult, error) {
	if err := definitions.CheckDate(q.Date); err != nil {
		return nil, err
	}
	q.Codings = slices.Clone(q.Codings)
	if q.ID != "" {
		for i := range q.Codings {
			if err := l.Systems.Instance(q.ID, &q.Codings[i]); err != nil {
				return nil, err
			}
		}
	}
	return run(l, nil, nil, &q, b)
}

// run validates codings against a value set of the library, or against their code systems if it is nil.
func run(l *definitions.Set, expansions *compose.CodeListCache, vs *definitions.ValueSet, q *Validation, b *budget.Budget) (result *ValidationResult, err error) {
	l.Use(func() {
		var v *validator
		if v, err = newValidator(l, vs, q, b); err == nil {
			v.expansions = expansions
			result, err = v.result()
		}
	})
	return result, err
}
