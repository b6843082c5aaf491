package validate

import (
	"bytes"
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

// codingValidator validates codings one by one.
type codingValidator struct {
	notes       *notes
	validation  *Query
	library     *definitions.Set
	valueSet    *definitions.ValueSet // nil: against the code system alone
	budget      *budget.Budget
	supplements []string // canonicals
	candidates  candidateFinder
	displays    displayChecker
	absent      absent
}

// codingResult is the validation result of one coding.
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
	unchecked []string          // canonicals of code systems whose codes were accepted without being looked up
	valueSets []outcome.Missing // imported
}

type validator struct {
	expansions *compose.CodeListCache
	checks     codingValidator
	codings    []parameters.Coding
}

// isConcept reports whether the codings belong to a CodeableConcept: then one valid coding is enough.
func (v *codingValidator) isConcept() bool { return v.validation.CodeableConcept != nil }

// onlyVersions reports whether codings were not found only because their versions are not here.
func (v *validator) onlyVersions() bool {
	return len(v.checks.absent.versions) > 0 && !slices.ContainsFunc(v.checks.notes.list, func(n note) bool { return n.TxCode == "this-code-not-in-vs" })
}

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

// judge adds the issues of a coding.
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

// inCodeSystem looks for a code in its code system, which has the given index.
func (v *codingValidator) inCodeSystem(c *parameters.Coding, d *codingResult, index uint32) {
	cs := d.codeSystem
	at, ok := cs.Concepts.Locate([]byte(c.Code))
	switch {
	case ok:
		if !d.entry.IsKnown() {
			d.entry.CodeSystem, d.entry.Concept, d.entry.At = index, cs.Number(at), at
		}
		d.member = d.member || v.valueSet == nil
		v.checkVersion(c, cs)
		return
	case cs.Content.IsPart() && v.standIn(c, d):
		return
	case cs.Content.IsPart() || cs.Content != definitions.ContentComplete && d.entry.Listed != 0:
		v.notes.note("warning", "code-invalid", "invalid-code", "UNKNOWN_CODE_IN_FRAGMENT", c, "code", false, fmt.Sprintf(
			"Unknown Code '%s' in the CodeSystem '%s' version '%s' - note that the code system is labeled as %s, so the code may be valid in some other fragment",
			c.Code, cs.URL, cs.Version, expansion.Article(string(cs.Content))))
		d.member = d.member || v.valueSet == nil
		definitions.AddTo(&v.absent.unchecked, cs.URL) // another server may have the rest
		return
	case !v.validation.MembershipOnly:
		v.unknownCode(c, cs)
	}
	d.member = false
}

// unknownCode notes that a code system does not have a code, and why. For units the reason is an issue too, since clients
// such as HAPI do not show diagnostics.
func (v *codingValidator) unknownCode(c *parameters.Coding, cs *definitions.CodeSystem) {
	id, text := cs.UnknownCode(c.Code)
	why := cs.Concepts.Refuser.Refusal([]byte(c.Code))
	v.notes.place(c, note{part: "code", told: true, Issue: outcome.Issue{
		Severity: "error", Code: "code-invalid", TxCode: "invalid-code", MessageID: id, Text: text, Detail: why,
	}})
	if why != "" && cs.ReasonIssue {
		v.notes.note("information", "code-invalid", "invalid-code", "", c, "code", false, why)
	}
	if cs.Compositional {
		v.notes.note("information", "informational", "processing-note", "", c, "code", false, fmt.Sprintf(
			"The code system '%s' is compositional: codes may be expressions of a grammar, which is not known here", cs.URL))
	}
}

// standIn reports whether what stands in for a code system that is not here, or only in part, has a code. Another server may
// know better.
func (v *codingValidator) standIn(c *parameters.Coding, d *codingResult) bool {
	e, ok := v.library.Systems.StandIn(c)
	if !ok {
		return false
	}
	e.Listed = d.entry.Listed
	d.member, d.entry, d.codeSystem = d.member || v.valueSet == nil, e, v.library.Systems.CodeSystems[e.CodeSystem]
	definitions.AddTo(&v.absent.unchecked, c.System)
	return true
}

// checkVersion notes a missing version where the code system demands one (R4 CodeSystem.versionNeeded).
func (v *codingValidator) checkVersion(c *parameters.Coding, cs *definitions.CodeSystem) {
	if cs.VersionNeeded && c.Version == "" && !v.validation.MembershipOnly {
		v.notes.note("error", "required", "invalid-data", "", c, "version", true, fmt.Sprintf(
			"The code system '%s' says that a version is needed, and the code '%s' has none", cs.URL, c.Code))
	}
}

// uncheckedSystem notes that the value set lists a code of a code system or version that is not here. The code is valid,
// as in the expansion, but another server may know better.
func (v *codingValidator) uncheckedSystem(c *parameters.Coding, version string) {
	if v.validation.MembershipOnly {
		return
	}
	reference := outcome.Canonical(c.System, version)
	definitions.AddTo(&v.absent.unchecked, reference)
	v.notes.note("warning", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true, fmt.Sprintf(
		"A definition for CodeSystem %s could not be found, so the code, which the value set lists, cannot be checked", reference))
}

// unknownSystem notes that a code system is not here, and whether the value set needs it.
func (v *codingValidator) unknownSystem(c *parameters.Coding, needed bool) {
	if _, ok := v.library.AnyValueSet(c.System, ""); ok {
		v.notes.note("error", "invalid", "invalid-data", "Terminology_TX_System_ValueSet2", c, "system", true,
			fmt.Sprintf("The Coding references a value set, not a code system ('%s')", c.System))
		return
	}
	list := &v.absent.systems
	if needed {
		list = &v.absent.versions
	}
	definitions.AddTo(list, c.System)
	if v.validation.MembershipOnly {
		return
	}
	if !isAbsolute(c.System) {
		v.notes.note("error", "invalid", "invalid-data", "Terminology_TX_System_Relative", c, "system", true,
			"Coding.system must be an absolute reference, not a local reference")
	}
	if c.Version != "" {
		v.notes.place(c, unknownVersion(c, c.Version, nil))
		return
	}
	v.notes.note("error", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true,
		fmt.Sprintf("A definition for CodeSystem %s could not be found, so the code cannot be validated", c.System))
}

// isAbsolute reports whether a uri has a scheme (RFC 3986 §4.3), as Coding.system must (R4 §2.24.0.1, uri).
func isAbsolute(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/?#")
}

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
