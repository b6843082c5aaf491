package validate

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// validate validates a coding. An error means that the value set is at fault.
func (v *codingValidator) validate(c *parameters.Coding) (codingResult, error) {
	d := codingResult{coding: c, entry: definitions.LocatedEntry{Entry: compose.UnknownEntry}}
	if err := v.budget.Spend(codingSteps + v.validation.Versions.Cost() + len(v.library.Systems.Versions(c.System))); err != nil {
		return d, err
	}
	if c.System == "" || c.Code == "" {
		v.incomplete(c)
		return d, nil
	}
	candidates, err := v.candidates.candidates(c)
	if err != nil {
		return d, err
	}
	choice, member, err := v.candidates.best(c, candidates)
	if err != nil {
		return d, err
	}
	for _, n := range choice.notes {
		v.notes.place(c, n)
	}
	if choice.unknown != "" {
		definitions.AddTo(&v.absent.versions, choice.unknown)
	}
	if choice.index != definitions.None {
		d.codeSystem = v.library.Systems.CodeSystems[choice.index]
	}
	if member != nil {
		d.member, d.entry = !choice.unsure, member.LocatedEntry
	}
	if err = v.judge(c, &d, choice, member); err == nil && v.notes.size > maxNoted {
		err = outcome.TooLong()
	}
	return d, err
}

// codingSteps is the cost of validating a coding without searching for it.
const codingSteps = 20

// incomplete notes that a coding has no system, no code, or neither: a warning, since it may be no error at its source.
func (v *codingValidator) incomplete(c *parameters.Coding) {
	lacks, text := "system", "Coding has no system. A code with no system has no defined meaning, and it cannot be validated. A system should be provided"
	switch {
	case c.Code == "" && c.System == "":
		lacks, text = "system_or_code", "Coding has neither a system nor a code, so that there is nothing to validate. Both should be provided"
	case c.Code == "":
		lacks, text = "code", "Coding has no code, so that it cannot be validated. A code should be provided"
	}
	v.notes.note("warning", "invalid", "invalid-data", "Coding_has_no_"+lacks+"__cannot_validate", c, "", true, text)
	if c.Code != "" {
		v.notInValueSet(c)
	}
}

// judge notes what is wrong with a coding.
func (v *codingValidator) judge(c *parameters.Coding, d *codingResult, choice versionChoice, member *found) error {
	cs := d.codeSystem
	switch {
	case cs == nil && choice.unknown == "" && (!choice.open || v.valueSet == nil) && v.standIn(c, d): // the value set needs no more of it
	case cs == nil && d.member:
		v.uncheckedSystem(c, choice.unchecked)
	case cs == nil:
		v.unknownSystem(c, choice.open)
	case cs.Content == definitions.ContentSupplement:
		v.notes.note("error", "invalid", "invalid-data", "CODESYSTEM_CS_NO_SUPPLEMENT", c, "system", true,
			fmt.Sprintf("CodeSystem %s is a supplement, so can't be used as a value in Coding.system", cs.Canonical()))
		d.codeSystem = nil
		return nil
	default:
		v.inCodeSystem(c, d, choice.index)
	}
	if member != nil && member.excluded {
		d.member = false
		v.notes.note("error", "business-rule", "code-rule", "STATUS_CODE_WARNING_CODE", c, "code", true, fmt.Sprintf("The concept '%s' is valid but is not active", c.Code))
	}
	// Without the code system or version that the value set means, there is no saying whether it has the code.
	if unsure := choice.unknown != "" && choice.index != definitions.None && d.entry.IsKnown(); !d.member && !unsure && !choice.open && v.valueSet != nil {
		v.notInValueSet(c)
	}
	if d.codeSystem != nil && d.entry.IsKnown() || d.entry.Listed != 0 {
		return v.describe(c, d)
	}
	return nil
}
