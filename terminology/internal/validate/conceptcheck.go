package validate

import (
	"bytes"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// describe checks the display of a concept that was found, and its status in the code system and the value set.
func (v *codingValidator) describe(c *parameters.Coding, d *codingResult) error {
	known := d.codeSystem != nil && d.entry.IsKnown()
	texts, err := v.texts(d, known)
	if err != nil {
		return err
	}
	if i := v.displays.languages.PreferredOrFirst(texts); i >= 0 {
		d.display = texts[i].Value
	}
	if known {
		v.checkCase(c, d)
	}
	v.checkAbstract(c, d)
	switch {
	case v.validation.MembershipOnly:
		return nil
	case known && d.codeSystem.Content == definitions.ContentStandIn:
		v.displays.checkStandIn(c, d.display)
		return nil
	}
	v.displays.check(c, texts, v.library.FlagsOf(d.entry)&codesystem.FlagUserAssigned != 0)
	if known {
		v.standing(c, d)
	}
	if v.valueSet != nil && d.member && v.library.DeprecatedIn(d.entry.Entry) {
		v.notes.note("warning", "business-rule", "code-comment", "CONCEPT_DEPRECATED_IN_VALUESET", c, "code", false, fmt.Sprintf(
			"The presence of the concept '%s' in the system '%s' in the value set %s is marked with a status of deprecated and its use should be reviewed",
			c.Code, c.System, v.valueSet.Canonical()))
	}
	return nil
}

// texts returns the displays and designations of a concept, with those of the named supplements.
func (v *codingValidator) texts(d *codingResult, known bool) ([]codesystem.Text, error) {
	var supplements []definitions.Supplement
	if known {
		cs := d.codeSystem
		if err := v.budget.Spend(len(v.supplements) * (1 + v.library.Systems.CountSupplements(cs.URL))); err != nil {
			return nil, err
		}
		for _, s := range v.library.Systems.SupplementsTo(cs, v.supplements) {
			supplements = append(supplements, definitions.Supplement{Of: d.entry.CodeSystem, By: s})
		}
	}
	language := ""
	if v.valueSet != nil {
		language = v.valueSet.Language
	}
	texts := v.library.ShownTexts(nil, d.entry, language, supplements)
	if known {
		var err error
		if texts, err = v.library.AppendCommonName(texts, d.entry, func(rows int) error { return v.budget.Spend(rows / budget.PlainBytes) }); err != nil {
			return nil, err
		}
	}
	return texts, v.budget.Compare(texts)
}

// checkCase notes that a code differs by case from the one of the code system.
func (v *codingValidator) checkCase(c *parameters.Coding, d *codingResult) {
	code := d.codeSystem.Concepts.Code(d.entry.At)
	if bytes.Equal(code, []byte(c.Code)) {
		return
	}
	d.normalized = code
	v.notes.note("information", "business-rule", "code-rule", "CODE_CASE_DIFFERENCE", c, "code", false, fmt.Sprintf(
		"The code '%s' differs from the correct code '%s' by case. Although the code system '%s' is case insensitive, implementers are strongly encouraged to use the correct case anyway",
		c.Code, code, d.codeSystem.Canonical()))
}

// checkAbstract notes that a concept is abstract if the request does not allow that.
func (v *codingValidator) checkAbstract(c *parameters.Coding, d *codingResult) {
	if !v.validation.NotAbstract || !d.member || v.library.FlagsOf(d.entry)&codesystem.FlagAbstract == 0 {
		return
	}
	d.member = false
	if !v.validation.MembershipOnly {
		v.notes.note("error", "business-rule", "code-rule", "ABSTRACT_CODE_NOT_ALLOWED", c, "code", true,
			fmt.Sprintf("Code '%s#%s' is abstract, and not allowed in this context", c.System, c.Code))
	}
	v.notInValueSet(c)
}

// standing notes that a concept is inactive or deprecated.
func (v *codingValidator) standing(c *parameters.Coding, d *codingResult) {
	flags := v.library.FlagsOf(d.entry)
	if flags&codesystem.FlagStatus != 0 {
		d.status = v.library.Systems.CodeSystems[d.entry.CodeSystem].Concepts.Notes.Status(d.entry.At)
	}
	switch {
	case flags&codesystem.FlagInactive != 0:
		d.inactive = true
		v.notes.note("warning", "business-rule", "code-comment", "INACTIVE_CONCEPT_FOUND", c, "", true,
			fmt.Sprintf("The concept '%s' has a status of %s and its use should be reviewed", c.Code, inactiveStatus(d.status)))
	case d.status == "deprecated" && d.member:
		d.deprecated = true
		v.notes.note("warning", "business-rule", "code-comment", "DEPRECATED_CONCEPT_FOUND", c, "", true,
			fmt.Sprintf("The concept '%s' is deprecated and its use should be reviewed", c.Code))
	}
}

// inactiveStatus completes a status that does not itself mean inactive, as LOINC's DISCOURAGED does.
func inactiveStatus(status string) string {
	switch status {
	case "", "inactive":
		return "inactive"
	case "DISCOURAGED":
		return status
	}
	return status + " and inactive"
}
