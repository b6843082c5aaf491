package terminology

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// describe notes what else there is to say of a concept that was found: its display, its standing in the
// code system and in the value set. What only a value set lists has but what that says of it.
func (v *validator) describe(c *coding, d *verdict) error {
	cs, l := d.codeSystem, v.library
	known := cs != nil && d.entry.concept != none
	var supplements []supplement
	language := ""
	if known {
		if err := v.budget.spend(len(v.named) * (1 + len(l.supplements[cs.url]))); err != nil {
			return err
		}
		for _, s := range l.supplementsTo(cs, v.named) {
			supplements = append(supplements, supplement{of: d.entry.codeSystem, by: s})
		}
	}
	if v.valueSet != nil {
		language = v.valueSet.language
	}
	texts := l.shownTexts(nil, d.entry, language, supplements)
	if err := v.compared(texts); err != nil {
		return err
	}
	if i := v.languages.preferredOrFirst(texts); i >= 0 {
		d.display = texts[i].value
	}
	if code := l.code(d.entry); known && !bytes.Equal(code, []byte(c.code)) {
		d.normalized = code
		v.note("information", "business-rule", "code-rule", "CODE_CASE_DIFFERENCE", c, "code", false, fmt.Sprintf(
			"The code '%s' differs from the correct code '%s' by case. Although the code system '%s' is case insensitive, implementers are strongly encouraged to use the correct case anyway",
			c.code, code, cs.canonical()))
	}
	v.checkAbstract(c, d)
	if v.memberOnly {
		return nil
	}
	v.checkDisplay(c, texts)
	if known {
		v.standing(c, d)
	}
	if v.valueSet != nil && d.member && l.deprecatedIn(d.entry) {
		v.note("warning", "business-rule", "code-comment", "CONCEPT_DEPRECATED_IN_VALUESET", c, "code", false, fmt.Sprintf(
			"The presence of the concept '%s' in the system '%s' in the value set %s is marked with a status of deprecated and its use should be reviewed",
			c.code, c.system, v.valueSet.canonical()))
	}
	return nil
}

// preferredOrFirst is preferred, but takes the default display rather than none.
func (l *languages) preferredOrFirst(texts []shownText) int {
	if i := l.preferred(texts); i >= 0 {
		return i
	}
	return firstDisplay(texts)
}

// checkAbstract notes that a concept is not to be chosen, where the request does not allow that.
func (v *validator) checkAbstract(c *coding, d *verdict) {
	if !v.concrete || !d.member || v.library.flags(d.entry)&flagAbstract == 0 {
		return
	}
	d.member = false
	if !v.memberOnly {
		v.note("error", "business-rule", "code-rule", "ABSTRACT_CODE_NOT_ALLOWED", c, "code", true,
			fmt.Sprintf("Code '%s#%s' is abstract, and not allowed in this context", c.system, c.code))
	}
	v.notInValueSet(c)
}

// standing notes that a concept is inactive or deprecated.
func (v *validator) standing(c *coding, d *verdict) {
	flags := v.library.flags(d.entry)
	if flags&flagStatus != 0 {
		d.status = v.library.statusOf(d.entry)
	}
	switch {
	case flags&flagInactive != 0:
		d.inactive = true
		v.note("warning", "business-rule", "code-comment", "INACTIVE_CONCEPT_FOUND", c, "", true,
			fmt.Sprintf("The concept '%s' has a status of %s and its use should be reviewed", c.code, inactiveStatus(d.status)))
	case d.status == "deprecated" && d.member:
		d.deprecated = true
		v.note("warning", "business-rule", "code-comment", "DEPRECATED_CONCEPT_FOUND", c, "", true,
			fmt.Sprintf("The concept '%s' is deprecated and its use should be reviewed", c.code))
	}
}

// inactiveStatus says why a concept is inactive: by a status, which mostly is not clear in itself (LOINC's
// DISCOURAGED is).
func inactiveStatus(status string) string {
	switch status {
	case "", "inactive":
		return "inactive"
	case "DISCOURAGED":
		return status
	}
	return status + " and inactive"
}

// deprecatedIn reports whether a value set that lists a concept says that it should not be there any more.
func (l *Library) deprecatedIn(e entry) bool {
	if e.listed == 0 {
		return false
	}
	table, _ := l.row(e.listed)
	for _, x := range table.extensionsOf(e.listed) {
		value := table.texts.at(x.value)
		if x.kind == extensionDeprecated && !bytes.HasSuffix(value, []byte(":false")) ||
			x.kind == extensionStandardsStatus && bytes.Contains(value, []byte(`"deprecated"`)) {
			return true
		}
	}
	return false
}

// indexOf returns the index of a code system.
func (l *Library) indexOf(cs *codeSystem) uint32 {
	for _, index := range l.systems[cs.system].versions {
		if l.codeSystems[index] == cs {
			return index
		}
	}
	return uint32(slices.Index(l.codeSystems, cs)) // it is contained in a value set
}

// standings notes the standing of the definitions that a coding was validated against.
func (v *validator) standings(list []verdict) {
	told := map[string]bool{}
	tell := func(kind string, d *definition) {
		name := d.standing(v.valueSet)
		if text := fmt.Sprintf("Reference to %s %s %s", name, kind, d.canonical()); name != "" && !told[text] {
			told[text] = true
			v.notes = append(v.notes, note{Issue: Issue{
				Severity: "information", Code: "business-rule", TxCode: "status-check", MessageID: "MSG_" + strings.ToUpper(name), Text: text,
			}})
		}
	}
	for i := range list {
		if list[i].codeSystem != nil {
			tell("CodeSystem", &list[i].codeSystem.definition)
		}
	}
	tell("ValueSet", &v.valueSet.definition)
	for _, vs := range v.imported {
		tell("ValueSet", &vs.definition)
	}
}
