package validate

import (
	"fmt"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// codingValidator validates codings one by one.
type codingValidator struct {
	notes       *notes
	validation  *Validation
	library     *definitions.Set
	valueSet    *definitions.ValueSet // nil: against the code system alone
	budget      *budget.Budget
	supplements []string // canonicals
	candidates  candidateFinder
	displays    displayChecker
	absent      absent
}

// codingResult is what validation finds out about one coding.
type codingResult struct {
	coding     *parameters.Coding
	member     bool // in the value set, or without one in the code system
	codeSystem *definitions.CodeSystem
	entry      definitions.LocatedEntry
	display    []byte
	normalized []byte // the code as the code system has it, if that differs by case
	status     string
	inactive   bool
	deprecated bool
}

func (v *codingValidator) notInValueSet(c *parameters.Coding) {
	if v.valueSet == nil {
		return
	}
	severity, txCode, isOne := "error", "not-in-vs", v.validation.CodeableConcept != nil
	if isOne {
		severity, txCode = "information", "this-code-not-in-vs"
	}
	for _, why := range v.candidates.mismatch {
		v.notes.place(c, note{told: !isOne, Issue: outcome.Issue{Severity: onlyTold, Text: why}})
	}
	v.notes.note(severity, "code-invalid", txCode, "None_of_the_provided_codes_are_in_the_value_set_one", c, "code", !isOne,
		fmt.Sprintf("The provided code '%s' was not found in the value set '%s'", c, v.valueSet.DisplayName()))
}

// absent lists what the codings need and the library lacks.
type absent struct {
	versions  []string          // canonicals of versions of code systems
	systems   []string          // urls of code systems that are not here at all
	unchecked []string          // canonicals of code systems of which the value set lists a code
	valueSets []outcome.Missing // imported
}

type validator struct {
	expansions *compose.CodeListCache
	checks     codingValidator
	codings    []parameters.Coding
}

// isConcept reports whether the codings are of a CodeableConcept, of which one must be valid.
func (v *codingValidator) isConcept() bool { return v.validation.CodeableConcept != nil }

// onlyVersions reports whether codings were not found only because their versions are not here.
func (v *validator) onlyVersions() bool {
	return len(v.checks.absent.versions) > 0 && !slices.ContainsFunc(v.checks.notes.list, func(n note) bool { return n.TxCode == "this-code-not-in-vs" })
}
