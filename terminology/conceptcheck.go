package terminology

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// describe checks the display of a concept that was found, and its status in the code system and the value set.
func (v *codingValidator) describe(c *Coding, d *codingResult) error {
	known := d.codeSystem != nil && d.entry.isKnown()
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
	if v.validation.MembershipOnly {
		return nil
	}
	v.displays.check(c, texts)
	if known {
		v.standing(c, d)
	}
	if v.valueSet != nil && d.member && v.library.deprecatedIn(d.entry.entry) {
		v.note("warning", "business-rule", "code-comment", "CONCEPT_DEPRECATED_IN_VALUESET", c, "code", false, fmt.Sprintf(
			"The presence of the concept '%s' in the system '%s' in the value set %s is marked with a status of deprecated and its use should be reviewed",
			c.Code, c.System, v.valueSet.canonical()))
	}
	return nil
}

// texts returns the displays and designations of a concept, with those of the named supplements.
func (v *codingValidator) texts(d *codingResult, known bool) ([]codesystem.Text, error) {
	var supplements []supplement
	if known {
		cs := d.codeSystem
		if err := v.budget.spend(len(v.supplements) * (1 + len(v.library.supplements[cs.url]))); err != nil {
			return nil, err
		}
		for _, s := range v.library.supplementsTo(cs, v.supplements) {
			supplements = append(supplements, supplement{of: d.entry.codeSystem, by: s})
		}
	}
	language := ""
	if v.valueSet != nil {
		language = v.valueSet.language
	}
	texts := v.library.shownTexts(nil, d.entry, language, supplements)
	return texts, v.budget.compare(texts)
}

// checkCase notes that a code differs by case from the one of the code system.
func (v *codingValidator) checkCase(c *Coding, d *codingResult) {
	code := d.codeSystem.concepts.Code(d.entry.at)
	if bytes.Equal(code, []byte(c.Code)) {
		return
	}
	d.normalized = code
	v.note("information", "business-rule", "code-rule", "CODE_CASE_DIFFERENCE", c, "code", false, fmt.Sprintf(
		"The code '%s' differs from the correct code '%s' by case. Although the code system '%s' is case insensitive, implementers are strongly encouraged to use the correct case anyway",
		c.Code, code, d.codeSystem.canonical()))
}

// checkAbstract notes that a concept is abstract if the request does not allow that.
func (v *codingValidator) checkAbstract(c *Coding, d *codingResult) {
	if !v.validation.NotAbstract || !d.member || v.library.flagsOf(d.entry)&codesystem.FlagAbstract == 0 {
		return
	}
	d.member = false
	if !v.validation.MembershipOnly {
		v.note("error", "business-rule", "code-rule", "ABSTRACT_CODE_NOT_ALLOWED", c, "code", true,
			fmt.Sprintf("Code '%s#%s' is abstract, and not allowed in this context", c.System, c.Code))
	}
	v.notInValueSet(c)
}

// standing notes that a concept is inactive or deprecated.
func (v *codingValidator) standing(c *Coding, d *codingResult) {
	flags := v.library.flagsOf(d.entry)
	if flags&codesystem.FlagStatus != 0 {
		d.status = v.library.codeSystems[d.entry.codeSystem].concepts.Notes.Status(d.entry.at)
	}
	switch {
	case flags&codesystem.FlagInactive != 0:
		d.inactive = true
		v.note("warning", "business-rule", "code-comment", "INACTIVE_CONCEPT_FOUND", c, "", true,
			fmt.Sprintf("The concept '%s' has a status of %s and its use should be reviewed", c.Code, inactiveStatus(d.status)))
	case d.status == "deprecated" && d.member:
		d.deprecated = true
		v.note("warning", "business-rule", "code-comment", "DEPRECATED_CONCEPT_FOUND", c, "", true,
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

// deprecatedIn reports whether the value set that lists a concept marks it as deprecated.
func (d *Set) deprecatedIn(e entry) bool {
	if e.listed == 0 {
		return false
	}
	table, _ := d.row(e.listed)
	return slices.ContainsFunc(table.extensionsOf(e.listed), func(x codesystem.ExtensionRow) bool {
		value := table.texts.At(x.Value)
		return x.Kind == codesystem.ExtensionDeprecated && !bytes.HasSuffix(value, []byte(":false")) ||
			x.Kind == codesystem.ExtensionStandardsStatus && bytes.Contains(value, []byte(`"deprecated"`))
	})
}
