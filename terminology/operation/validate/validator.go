package validate

import (
	"bytes"
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

// run validates codings against a loaded value set, or against their code systems if vs is nil.
func run(l *definitions.Set, expansions *compose.CodeListCache, vs *definitions.ValueSet, q *Query, b *budget.Budget) (result *Result, err error) {
	l.Use(func() {
		var v *validator
		if v, err = newValidator(l, vs, q, b); err == nil {
			v.expansions = expansions
			result, err = v.result()
		}
	})
	return result, err
}

type validator struct {
	expansions *compose.CodeListCache
	checks     codingValidator
	codings    []parameters.Coding
}

// newValidator prepares the validation against a value set, or against code systems if vs is nil.
func newValidator(l *definitions.Set, vs *definitions.ValueSet, q *Query, b *budget.Budget) (*validator, error) {
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

func (v *validator) result() (*Result, error) {
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
			"No valid coding was found for the value set '%s'", v.checks.valueSet.DisplayName())
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

// noCodes reports whether codings is not empty and all codes are.
func noCodes(codings []parameters.Coding) bool {
	return len(codings) > 0 && !slices.ContainsFunc(codings, func(c parameters.Coding) bool { return c.Code != "" })
}

// infer determines the system of a code from the value set.
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
	v.checks.notes.note("error", "not-found", "cannot-infer", id, c, "code", true,
		"The System URI could not be determined for the code '%s' in the ValueSet '%s': %s", c.Code, v.checks.valueSet.Canonical(), reason)
	return nil
}

// missingValueSet converts the error about a missing imported value set to an issue. It returns other errors.
func (v *validator) missingValueSet(err error) error {
	var e *outcome.Error
	if !errors.As(err, &e) || len(e.Missing) == 0 || e.Missing[0].Kind != "ValueSet" {
		return err
	}
	v.checks.absent.valueSets = append(v.checks.absent.valueSets, e.Missing...)
	id, text := "Unable_to_resolve_value_Set_", fmt.Sprintf("A definition for the value Set '%s' could not be found", e.Missing[0].Canonical)
	if e.MessageID == "" { // the value set is loaded without its content
		id, text = "", e.Text
	}
	v.checks.notes.note("error", "not-found", "not-found", id, nil, "", true, "%s", text)
	return nil
}

// systemsOf returns the systems of a code in the value set: those in its expansion or, with grammars, which have
// unlisted codes, the code systems in which the code is valid.
func (v *validator) systemsOf(c *parameters.Coding) (systems []string, err error) {
	l := v.checks.library
	named, hasGrammar, err := v.systemsNamed()
	if err != nil {
		return nil, err
	}
	if !hasGrammar {
		return v.systemsListed(c)
	}
	for _, system := range named {
		if err := v.checks.budget.Charge(codingSteps + len(l.Systems.Versions(system))); err != nil {
			return nil, err
		}
		list, err := v.checks.candidates.candidates(&parameters.Coding{System: system, Code: c.Code})
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if o.member != nil && !o.member.excluded {
				definitions.AddTo(&systems, system)
			}
		}
	}
	return systems, nil
}

// systemsNamed returns the systems of the value set and its imports, and whether any is a grammar.
func (v *validator) systemsNamed() (systems []string, hasGrammar bool, err error) {
	l, sets := v.checks.library, make(map[*definitions.ValueSet]bool)
	if err := compose.NewEvaluator(l, &v.checks.validation.Rules, v.checks.budget).CheckImports(v.checks.valueSet, sets); err != nil {
		return nil, false, err
	}
	for vs := range sets {
		for i := range vs.Include {
			url, version := vs.Include[i].System, vs.Include[i].Version
			index := l.Systems.ContainedCodeSystem(vs, url, version)
			if index == definitions.None {
				index = l.Systems.CodeSystem(url, version)
			}
			if index != definitions.None {
				cs := l.Systems.CodeSystems[index]
				url, hasGrammar = cs.URL, hasGrammar || cs.Concepts.List == nil || cs.Common != ""
			}
			if url != "" {
				definitions.AddTo(&systems, url)
			}
		}
	}
	return systems, hasGrammar, v.checks.budget.Charge(len(sets))
}

// systemsListed returns the systems of a code in the expansion of the value set.
func (v *validator) systemsListed(c *parameters.Coding) (systems []string, err error) {
	x, err := (&compose.Expander{Library: v.checks.library, Cache: v.expansions, Rules: &v.checks.validation.Rules, Budget: v.checks.budget}).Codes(v.checks.valueSet)
	if err != nil {
		return nil, err
	}
	for _, e := range x.Entries {
		if isCode(v.checks.library, e, []byte(c.Code)) {
			definitions.AddTo(&systems, v.checks.library.Systems.List[v.checks.library.SystemOf(e)].URL)
		}
	}
	return systems, v.checks.budget.Charge(len(x.Entries) / 8)
}

// isCode reports whether a code matches an entry, ignoring case if its code system does.
func isCode(d *definitions.Set, e definitions.Entry, code []byte) bool {
	return bytes.Equal(d.Code(e), code) ||
		e.IsKnown() && !d.Systems.CodeSystems[e.CodeSystem].CaseSensitive && codesystem.EqualFold(d.Code(e), code)
}

// summarize builds the result.
func (v *validator) summarize(results []codingResult) *Result {
	r := &Result{UnknownVersions: v.checks.absent.versions, UnknownSystems: v.checks.absent.systems, concept: v.checks.validation.CodeableConcept}
	r.Valid = slices.ContainsFunc(results, func(d codingResult) bool { return d.member }) && !v.checks.notes.failed()
	if d := v.shown(results); d != nil {
		r.Found = d.found()
	}
	var messages []string
	for _, n := range v.checks.notes.list {
		if n.Severity != onlyTold {
			r.Issues = append(r.Issues, n.Issue)
		}
		if n.told && (r.Valid || n.Severity != "information") {
			definitions.AddTo(&messages, n.Text)
		}
	}
	r.Message = strings.Join(messages, "; ")
	if !r.Valid || len(v.checks.absent.unchecked) > 0 {
		r.Missing = v.lacking()
	}
	return r
}

// lacking returns the missing definitions of codings that were not found.
func (v *validator) lacking() []outcome.Missing {
	list := append(v.checks.absent.valueSets, missingSystems(v.checks.library, v.codings)...)
	for _, reference := range slices.Concat(v.checks.absent.versions, v.checks.absent.unchecked) {
		definitions.AddTo(&list, outcome.Missing{Kind: "CodeSystem", Canonical: reference})
	}
	return list
}

// shown returns the coding that the result is about: the first valid coding, otherwise possibly the first coding.
func (v *validator) shown(results []codingResult) *codingResult {
	for i := range results {
		if results[i].member {
			return &results[i]
		}
	}
	if len(results) == 0 || v.checks.isConcept() && (!v.onlyVersions() || results[0].codeSystem == nil) {
		return nil
	}
	return &results[0]
}

func (d *codingResult) found() *FoundCoding {
	f := &FoundCoding{Coding: *d.coding, NormalizedCode: string(d.normalized), Inactive: d.inactive, invalid: !d.member}
	f.Version, f.Display = "", string(d.display)
	if d.codeSystem != nil {
		f.Version = d.codeSystem.Version
	}
	if d.status != "inactive" && (d.inactive || d.deprecated) {
		f.Status = d.status
	}
	return f
}

// standings adds issues about deprecated, draft and similar definitions that were used.
func (v *validator) standings(list []codingResult) {
	told := map[string]bool{}
	tell := func(kind string, d *definitions.Definition) {
		name := d.StatusWarning(v.checks.valueSet)
		if text := fmt.Sprintf("Reference to %s %s %s", name, kind, d.Canonical()); name != "" && !told[text] {
			told[text] = true
			v.checks.notes.note("information", "business-rule", "status-check", "MSG_"+strings.ToUpper(name), nil, "", false, "%s", text)
		}
	}
	for i := range list {
		if list[i].codeSystem != nil {
			tell("CodeSystem", &list[i].codeSystem.Definition)
		}
	}
	tell("ValueSet", &v.checks.valueSet.Definition)
	for _, vs := range v.checks.candidates.imported {
		tell("ValueSet", &vs.Definition)
	}
}

// missingSystems returns the code systems of the codings that are not loaded.
func missingSystems(t *definitions.Set, codings []parameters.Coding) (list []outcome.Missing) {
	for i := range codings {
		c := &codings[i]
		index := t.Systems.CodeSystem(c.System, c.Version)
		if c.System != "" && (index == definitions.None || !t.Systems.CodeSystems[index].Content.HasConcepts()) {
			list = append(list, outcome.MissingOf("CodeSystem", c.System, c.Version)...)
		}
	}
	return list
}

// note is an issue found by validation.
type note struct {
	outcome.Issue
	part string // part of the coding; Coding.Place returns its location
	told bool   // included in the message
}

// onlyTold is the severity of texts that are only in the message and not an issue, as on other servers.
const onlyTold = ""

// notes contains the issues of all codings.
type notes struct {
	list []note
	size int // size of the texts in bytes
}

// maxNoted is the maximum size of all issues in bytes, because a code system in a request may have a hundred thousand
// displays to list.
const maxNoted = 4 << 20

// note adds an issue about a part of a coding with a formatted text.
func (n *notes) note(severity, code, txCode, id string, c *parameters.Coding, part string, told bool, format string, args ...any) {
	n.place(c, note{part: part, told: told, Issue: outcome.Issue{Severity: severity, Code: code, TxCode: txCode, MessageID: id, Text: fmt.Sprintf(format, args...)}})
}

// place adds an issue with the location of its part of a coding.
func (n *notes) place(c *parameters.Coding, one note) {
	if c != nil {
		one.Expression = []string{c.Place(one.part)}
	}
	n.list = append(n.list, one)
	n.size += len(one.Text)
}

func (n *notes) failed() bool { return slices.ContainsFunc(n.list, note.isError) }

func (n note) isError() bool { return n.Severity == "error" }

// codingValidator validates individual codings.
type codingValidator struct {
	notes       *notes
	validation  *Query
	library     *definitions.Set
	valueSet    *definitions.ValueSet // nil: validate only against the code system
	budget      *budget.Budget
	supplements []string // canonicals of supplements
	candidates  candidateFinder
	displays    displayChecker
	absent      absent
}

// codingResult is the result for a coding.
type codingResult struct {
	coding     *parameters.Coding
	member     bool // in the value set or, without one, in the code system
	codeSystem *definitions.CodeSystem
	entry      definitions.LocatedEntry
	display    []byte
	normalized []byte // code as in the code system if its case differs
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
		"The provided code '%s' was not found in the value set '%s'", c, v.valueSet.DisplayName())
}

// absent lists the definitions that codings need and the library lacks.
type absent struct {
	versions  []string          // canonicals of code system versions
	systems   []string          // URLs of entirely missing code systems
	unchecked []string          // canonicals of code systems with accepted, unchecked codes
	valueSets []outcome.Missing // imported value sets
}

// isConcept reports whether the codings belong to a CodeableConcept: one valid coding then suffices.
func (v *codingValidator) isConcept() bool { return v.validation.CodeableConcept != nil }

// onlyVersions reports whether codings were not found only because of missing versions.
func (v *validator) onlyVersions() bool {
	return len(v.checks.absent.versions) > 0 && !slices.ContainsFunc(v.checks.notes.list, func(n note) bool { return n.TxCode == "this-code-not-in-vs" })
}

// validate validates a coding. An error indicates an invalid value set.
func (v *codingValidator) validate(c *parameters.Coding) (codingResult, error) {
	d := codingResult{coding: c, entry: definitions.LocatedEntry{Entry: compose.UnknownEntry}}
	if err := v.budget.Charge(codingSteps + v.validation.Versions.Cost() + len(v.library.Systems.Versions(c.System))); err != nil {
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

// incomplete warns about a coding without system or code, which may be valid at its source.
func (v *codingValidator) incomplete(c *parameters.Coding) {
	lacks, text := "system", "Coding has no system. A code with no system has no defined meaning, and it cannot be validated. A system should be provided"
	switch {
	case c.Code == "" && c.System == "":
		lacks, text = "system_or_code", "Coding has neither a system nor a code, so that there is nothing to validate. Both should be provided"
	case c.Code == "":
		lacks, text = "code", "Coding has no code, so that it cannot be validated. A code should be provided"
	}
	v.notes.note("warning", "invalid", "invalid-data", "Coding_has_no_"+lacks+"__cannot_validate", c, "", true, "%s", text)
	if c.Code != "" {
		v.notInValueSet(c)
	}
}

// judge adds the issues of a coding.
func (v *codingValidator) judge(c *parameters.Coding, d *codingResult, choice versionChoice, member *found) error {
	cs := d.codeSystem
	switch {
	case cs == nil && choice.unknown == "" && (!choice.open || v.valueSet == nil) && v.standIn(c, d): // the value set does not need the complete code system
	case cs == nil && d.member:
		v.uncheckedSystem(c, choice.unchecked)
	case cs == nil:
		v.unknownSystem(c, choice.open)
	case cs.Content == definitions.ContentSupplement:
		v.notes.note("error", "invalid", "invalid-data", "CODESYSTEM_CS_NO_SUPPLEMENT", c, "system", true,
			"CodeSystem %s is a supplement, so can't be used as a value in Coding.system", cs.Canonical())
		d.codeSystem = nil
		return nil
	default:
		v.inCodeSystem(c, d, choice.index)
	}
	if member != nil && member.excluded {
		d.member = false
		v.notes.note("error", "business-rule", "code-rule", "STATUS_CODE_WARNING_CODE", c, "code", true, "The concept '%s' is valid but is not active", c.Code)
	}
	// If the code system or version of the value set is missing, membership is unknown.
	if unsure := choice.unknown != "" && choice.index != definitions.None && d.entry.IsKnown(); !d.member && !unsure && !choice.open && v.valueSet != nil {
		v.notInValueSet(c)
	}
	if d.codeSystem != nil && d.entry.IsKnown() || d.entry.Listed != 0 {
		return v.describe(c, d)
	}
	return nil
}

// inCodeSystem looks up a code in its code system with the given index.
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
		v.notes.note("warning", "code-invalid", "invalid-code", "UNKNOWN_CODE_IN_FRAGMENT", c, "code", false,
			"Unknown Code '%s' in the CodeSystem '%s' version '%s' - note that the code system is labeled as %s, so the code may be valid in some other fragment",
			c.Code, cs.URL, cs.Version, expansion.Article(string(cs.Content)))
		d.member = d.member || v.valueSet == nil
		definitions.AddTo(&v.absent.unchecked, cs.URL) // another server may have the other codes
		return
	case !v.validation.MembershipOnly:
		v.unknownCode(c, cs)
	}
	d.member = false
}

// unknownCode adds an issue about an unknown code, with the reason. For units the reason is also a separate issue,
// because clients such as HAPI do not display diagnostics.
func (v *codingValidator) unknownCode(c *parameters.Coding, cs *definitions.CodeSystem) {
	id, text := cs.UnknownCode(c.Code)
	why := cs.Concepts.Refuser.InvalidReason([]byte(c.Code))
	v.notes.place(c, note{part: "code", told: true, Issue: outcome.Issue{
		Severity: "error", Code: "code-invalid", TxCode: "invalid-code", MessageID: id, Text: text, Detail: why,
	}})
	if why != "" && cs.ReasonIssue {
		v.notes.note("information", "code-invalid", "invalid-code", "", c, "code", false, "%s", why)
	}
	if cs.Compositional {
		v.notes.note("information", "informational", "processing-note", "", c, "code", false,
			"The code system '%s' is compositional: codes may be expressions of a grammar, which is not known here", cs.URL)
	}
}

// standIn reports whether a stand-in for a missing or incomplete code system has a code. Another server may have the
// complete code system.
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

// checkVersion adds an issue if a required version is missing (R4 CodeSystem.versionNeeded).
func (v *codingValidator) checkVersion(c *parameters.Coding, cs *definitions.CodeSystem) {
	if cs.VersionNeeded && c.Version == "" && !v.validation.MembershipOnly {
		v.notes.note("error", "required", "invalid-data", "", c, "version", true,
			"The code system '%s' says that a version is needed, and the code '%s' has none", cs.URL, c.Code)
	}
}

// uncheckedSystem adds a warning about an enumerated code of a missing code system or version. The code is valid, as in
// the expansion, but another server may be able to check it.
func (v *codingValidator) uncheckedSystem(c *parameters.Coding, version string) {
	if v.validation.MembershipOnly {
		return
	}
	reference := outcome.Canonical(c.System, version)
	definitions.AddTo(&v.absent.unchecked, reference)
	v.notes.note("warning", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true,
		"A definition for CodeSystem %s could not be found, so the code, which the value set lists, cannot be checked", reference)
}

// unknownSystem adds an issue about a missing code system; needed reports whether the value set needs it.
func (v *codingValidator) unknownSystem(c *parameters.Coding, needed bool) {
	if _, ok := v.library.AnyValueSet(c.System, ""); ok {
		v.notes.note("error", "invalid", "invalid-data", "Terminology_TX_System_ValueSet2", c, "system", true,
			"The Coding references a value set, not a code system ('%s')", c.System)
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
		"A definition for CodeSystem %s could not be found, so the code cannot be validated", c.System)
}

// isAbsolute reports whether a URI has a scheme (RFC 3986 §4.3), as Coding.system requires (R4 §2.24.0.1, uri).
func isAbsolute(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/?#")
}

// describe validates the display of a found concept and checks its status in the code system and the value set.
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
		v.notes.note("warning", "business-rule", "code-comment", "CONCEPT_DEPRECATED_IN_VALUESET", c, "code", false,
			"The presence of the concept '%s' in the system '%s' in the value set %s is marked with a status of deprecated and its use should be reviewed",
			c.Code, c.System, v.valueSet.Canonical())
	}
	return nil
}

// texts returns the displays and designations of a concept, including those of the named supplements.
func (v *codingValidator) texts(d *codingResult, known bool) ([]codesystem.Text, error) {
	var supplements []definitions.Supplement
	if known {
		cs := d.codeSystem
		if err := v.budget.Charge(len(v.supplements) * (1 + v.library.Systems.CountSupplements(cs.URL))); err != nil {
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
		if texts, err = v.library.AppendCommonName(texts, d.entry, func(rows int) error { return v.budget.Charge(rows / budget.PlainBytes) }); err != nil {
			return nil, err
		}
	}
	return texts, v.budget.Compare(texts)
}

// checkCase adds an issue if the case of a code differs from that in the code system.
func (v *codingValidator) checkCase(c *parameters.Coding, d *codingResult) {
	code := d.codeSystem.Concepts.Code(d.entry.At)
	if bytes.Equal(code, []byte(c.Code)) {
		return
	}
	d.normalized = code
	v.notes.note("information", "business-rule", "code-rule", "CODE_CASE_DIFFERENCE", c, "code", false,
		"The code '%s' differs from the correct code '%s' by case. Although the code system '%s' is case insensitive, implementers are strongly encouraged to use the correct case anyway",
		c.Code, code, d.codeSystem.Canonical())
}

// checkAbstract adds an issue about an abstract concept if the request rejects abstract codes.
func (v *codingValidator) checkAbstract(c *parameters.Coding, d *codingResult) {
	if !v.validation.NotAbstract || !d.member || v.library.FlagsOf(d.entry)&codesystem.FlagAbstract == 0 {
		return
	}
	d.member = false
	if !v.validation.MembershipOnly {
		v.notes.note("error", "business-rule", "code-rule", "ABSTRACT_CODE_NOT_ALLOWED", c, "code", true,
			"Code '%s#%s' is abstract, and not allowed in this context", c.System, c.Code)
	}
	v.notInValueSet(c)
}

// standing adds issues about an inactive or deprecated concept.
func (v *codingValidator) standing(c *parameters.Coding, d *codingResult) {
	flags := v.library.FlagsOf(d.entry)
	if flags&codesystem.FlagStatus != 0 {
		d.status = v.library.Systems.CodeSystems[d.entry.CodeSystem].Concepts.Notes.Status(d.entry.At)
	}
	switch {
	case flags&codesystem.FlagInactive != 0:
		d.inactive = true
		v.notes.note("warning", "business-rule", "code-comment", "INACTIVE_CONCEPT_FOUND", c, "", true,
			"The concept '%s' has a status of %s and its use should be reviewed", c.Code, inactiveStatus(d.status))
	case d.status == "deprecated" && d.member:
		d.deprecated = true
		v.notes.note("warning", "business-rule", "code-comment", "DEPRECATED_CONCEPT_FOUND", c, "", true,
			"The concept '%s' is deprecated and its use should be reviewed", c.Code)
	}
}

// inactiveStatus adds inactive to a status that does not imply it, unlike LOINC's DISCOURAGED.
func inactiveStatus(status string) string {
	switch status {
	case "", "inactive":
		return "inactive"
	case "DISCOURAGED":
		return status
	}
	return status + " and inactive"
}
