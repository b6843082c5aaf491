package validate

import (
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

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
