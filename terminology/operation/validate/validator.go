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

// run validates codings against the value set vs, or against their code systems if vs is nil.
func run(l *definitions.Set, expansions *compose.CodeListCache, vs *definitions.ValueSet, q *Query, b *budget.Budget) (result *Result, err error) {
	l.Use(func() {
		var v *validator
		if v, err = newValidator(l, vs, q, b); err == nil {
			v.codeLists = expansions
			result, err = v.result()
		}
	})
	return result, err
}

type validator struct {
	codeLists       *compose.CodeListCache
	codingValidator codingValidator
	codings         []parameters.Coding
}

// newValidator returns a validator for the value set vs, or for code systems if vs is nil.
func newValidator(l *definitions.Set, vs *definitions.ValueSet, q *Query, b *budget.Budget) (*validator, error) {
	named, language := q.Supplements, q.Language.Preferred(&definitions.ValueSet{})
	if vs != nil {
		defaults := expansion.Query{Rules: q.Rules}
		if err := defaults.ApplyDefaults(vs.Defaults); err != nil {
			return nil, err
		}
		q.Rules, language, named = defaults.Rules, q.Language.Preferred(vs), slices.Concat(named, vs.Supplements)
	}
	found := new(issueList)
	versions := versionChooser{systems: &l.Systems, rules: &q.Rules, inValueSet: vs != nil}
	v := &validator{codings: slices.Clone(q.Codings), codingValidator: codingValidator{
		issues: found, query: q, definitions: l, valueSet: vs, budget: b, supplements: named,
		candidates: candidateFinder{definitions: l, valueSet: vs, rules: &q.Rules, budget: b, versions: versions, membershipOnly: q.MembershipOnly},
		displays:   displayChecker{issues: found, language: language, warnsOnly: q.LenientDisplay},
	}}
	if language != "" {
		v.codingValidator.displays.languages = codesystem.ParseLanguages(language)
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
	member := func(d codingResult) bool { return d.isMember }
	if v.codingValidator.isConcept() && v.codingValidator.valueSet != nil && !slices.ContainsFunc(results, member) && !v.onlyVersionsMissing() && !allCodesEmpty(v.codings) {
		v.codingValidator.issues.addFormatted("error", "code-invalid", "not-in-vs", "TX_GENERAL_CC_ERROR_MESSAGE", nil, "", true,
			"No valid coding was found for the value set '%s'", v.codingValidator.valueSet.DisplayName())
	}
	if v.codingValidator.valueSet != nil {
		v.addStatusIssues(results)
	} else if len(results) == 0 {
		v.codingValidator.issues.addFormatted("error", "code-invalid", "invalid-code", "", nil, "", true, "There is no coding of the code system")
	}
	return v.summarize(results), nil
}

func (v *validator) checkCodings() (list []codingResult, err error) {
	if v.codingValidator.query.InferSystem && v.codingValidator.valueSet != nil && len(v.codings) == 1 && v.codings[0].System == "" {
		if err := v.inferSystem(&v.codings[0]); err != nil {
			return nil, err
		}
		if v.codings[0].System == "" {
			return []codingResult{{coding: &v.codings[0]}}, nil
		}
	}
	for i := range v.codings {
		d, err := v.codingValidator.validate(&v.codings[i])
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// allCodesEmpty reports whether there are codings and none of them has a code.
func allCodesEmpty(codings []parameters.Coding) bool {
	return len(codings) > 0 && !slices.ContainsFunc(codings, func(c parameters.Coding) bool { return c.Code != "" })
}

// inferSystem sets the system of a coding from the value set. It adds an issue if there is not exactly one.
func (v *validator) inferSystem(c *parameters.Coding) error {
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
	v.codingValidator.addNotInValueSet(c)
	v.codingValidator.issues.addFormatted("error", "not-found", "cannot-infer", id, c, "code", true,
		"The System URI could not be determined for the code '%s' in the ValueSet '%s': %s", c.Code, v.codingValidator.valueSet.Canonical(), reason)
	return nil
}

// missingValueSet adds an issue if err is about a missing imported value set. It returns any other error.
func (v *validator) missingValueSet(err error) error {
	var e *outcome.Error
	if !errors.As(err, &e) || len(e.Missing) == 0 || e.Missing[0].ResourceType != "ValueSet" {
		return err
	}
	v.codingValidator.missing.valueSets = append(v.codingValidator.missing.valueSets, e.Missing...)
	id, text := "Unable_to_resolve_value_Set_", fmt.Sprintf("A definition for the value Set '%s' could not be found", e.Missing[0].Canonical)
	if e.MessageID == "" { // the value set is loaded, but not its content
		id, text = "", e.Text
	}
	v.codingValidator.issues.addFormatted("error", "not-found", "not-found", id, nil, "", true, "%s", text)
	return nil
}

// systemsOf returns the code systems of a code in the value set. If any code system is a grammar or has common codes, its codes
// may be missing in the expansion. In that case, the code is validated in each code system instead.
func (v *validator) systemsOf(c *parameters.Coding) (systems []string, err error) {
	l := v.codingValidator.definitions
	named, hasGrammar, err := v.declaredSystems()
	if err != nil {
		return nil, err
	}
	if !hasGrammar {
		return v.expandedSystems(c)
	}
	for _, system := range named {
		if err := v.codingValidator.budget.Charge(codingSteps + len(l.Systems.Versions(system))); err != nil {
			return nil, err
		}
		list, err := v.codingValidator.candidates.candidates(&parameters.Coding{System: system, Code: c.Code})
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if o.member != nil && !o.member.isExcluded {
				definitions.AppendUnique(&systems, system)
			}
		}
	}
	return systems, nil
}

// declaredSystems returns the code systems of the value set and its imports, and whether any cannot be listed completely.
func (v *validator) declaredSystems() (systems []string, hasGrammar bool, err error) {
	l, sets := v.codingValidator.definitions, make(map[*definitions.ValueSet]bool)
	if err := compose.NewEvaluator(l, &v.codingValidator.query.Rules, v.codingValidator.budget).CheckImports(v.codingValidator.valueSet, sets); err != nil {
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
				url, hasGrammar = cs.URL, hasGrammar || cs.Concepts.List == nil || cs.CommonCodes != ""
			}
			if url != "" {
				definitions.AppendUnique(&systems, url)
			}
		}
	}
	return systems, hasGrammar, v.codingValidator.budget.Charge(len(sets))
}

// expandedSystems returns the code systems of the expansion's entries with the given code.
func (v *validator) expandedSystems(c *parameters.Coding) (systems []string, err error) {
	x, err := (&compose.Expander{Definitions: v.codingValidator.definitions, Cache: v.codeLists, Rules: &v.codingValidator.query.Rules, Budget: v.codingValidator.budget}).Codes(v.codingValidator.valueSet)
	if err != nil {
		return nil, err
	}
	for _, e := range x.Entries {
		if isCode(v.codingValidator.definitions, e, []byte(c.Code)) {
			definitions.AppendUnique(&systems, v.codingValidator.definitions.Systems.List[v.codingValidator.definitions.SystemOf(e)].URL)
		}
	}
	return systems, v.codingValidator.budget.Charge(len(x.Entries) / 8)
}

// isCode reports whether an entry has the given code. It ignores case if the code system is case-insensitive.
func isCode(d *definitions.Set, e definitions.Entry, code []byte) bool {
	return bytes.Equal(d.Code(e), code) ||
		e.HasConcept() && !d.Systems.CodeSystems[e.CodeSystem].CaseSensitive && codesystem.EqualFold(d.Code(e), code)
}

// summarize returns the result for all codings.
func (v *validator) summarize(results []codingResult) *Result {
	r := &Result{UnknownVersions: v.codingValidator.missing.versions, UnknownSystems: v.codingValidator.missing.systems, concept: v.codingValidator.query.CodeableConcept}
	r.Valid = slices.ContainsFunc(results, func(d codingResult) bool { return d.isMember }) && !v.codingValidator.issues.hasErrors()
	if d := v.mainResult(results); d != nil {
		r.Found = d.found()
	}
	var messages []string
	for _, n := range v.codingValidator.issues.list {
		if n.Severity != severityMessageOnly {
			r.Issues = append(r.Issues, n.Issue)
		}
		if n.inMessage && (r.Valid || n.Severity != "information") {
			definitions.AppendUnique(&messages, n.Text)
		}
	}
	r.Message = strings.Join(messages, "; ")
	if !r.Valid || len(v.codingValidator.missing.uncheckedSystems) > 0 {
		r.Missing = v.missingDefinitions()
	}
	return r
}

// missingDefinitions returns the missing definitions of all codings.
func (v *validator) missingDefinitions() []outcome.MissingDefinition {
	list := append(v.codingValidator.missing.valueSets, missingSystems(v.codingValidator.definitions, v.codings)...)
	for _, reference := range slices.Concat(v.codingValidator.missing.versions, v.codingValidator.missing.uncheckedSystems) {
		definitions.AppendUnique(&list, outcome.MissingDefinition{ResourceType: "CodeSystem", Canonical: reference})
	}
	return list
}

// mainResult returns the coding that the result is about, or nil. This is the first valid coding or, if none is valid, usually
// the first coding. For an invalid CodeableConcept, it is nil unless only versions are missing.
func (v *validator) mainResult(results []codingResult) *codingResult {
	for i := range results {
		if results[i].isMember {
			return &results[i]
		}
	}
	if len(results) == 0 || v.codingValidator.isConcept() && (!v.onlyVersionsMissing() || results[0].codeSystem == nil) {
		return nil
	}
	return &results[0]
}

func (d *codingResult) found() *FoundCoding {
	f := &FoundCoding{Coding: *d.coding, NormalizedCode: string(d.normalized), Inactive: d.inactive, notInValueSet: !d.isMember}
	f.Version, f.Display = "", string(d.display)
	if d.codeSystem != nil {
		f.Version = d.codeSystem.Version
	}
	if d.status != "inactive" && (d.inactive || d.deprecated) {
		f.Status = d.status
	}
	return f
}

// addStatusIssues adds an issue for each used definition that is deprecated, draft or similar.
func (v *validator) addStatusIssues(list []codingResult) {
	reported := map[string]bool{}
	report := func(kind string, d *definitions.Definition) {
		name := d.StatusWarning(v.codingValidator.valueSet)
		if text := fmt.Sprintf("Reference to %s %s %s", name, kind, d.Canonical()); name != "" && !reported[text] {
			reported[text] = true
			v.codingValidator.issues.addFormatted("information", "business-rule", "status-check", "MSG_"+strings.ToUpper(name), nil, "", false, "%s", text)
		}
	}
	for i := range list {
		if list[i].codeSystem != nil {
			report("CodeSystem", &list[i].codeSystem.Definition)
		}
	}
	report("ValueSet", &v.codingValidator.valueSet.Definition)
	for _, vs := range v.codingValidator.candidates.searchedImports {
		report("ValueSet", &vs.Definition)
	}
}

// missingSystems returns those code systems of the codings that are not loaded.
func missingSystems(t *definitions.Set, codings []parameters.Coding) (list []outcome.MissingDefinition) {
	for i := range codings {
		c := &codings[i]
		index := t.Systems.CodeSystem(c.System, c.Version)
		if c.System != "" && (index == definitions.None || !t.Systems.CodeSystems[index].Content.HasConcepts()) {
			list = append(list, outcome.MissingOf("CodeSystem", c.System, c.Version)...)
		}
	}
	return list
}

// codingIssue is an issue with a coding.
type codingIssue struct {
	outcome.Issue
	part      string // part of the coding that Coding.Path converts to a location
	inMessage bool   // whether Message includes the text
}

// severityMessageOnly is the severity of texts that are part of the message but, as on other servers, not an issue.
const severityMessageOnly = ""

// issueList contains the issues of all codings.
type issueList struct {
	list []codingIssue
	size int // total size of the texts in bytes
}

// maxIssueBytes is the maximum size of all issues in bytes. Without a limit, a code system in a request could contain a hundred
// thousand displays that are listed in an issue.
const maxIssueBytes = 4 << 20

// addFormatted adds an issue with a formatted text about a part of a coding.
func (n *issueList) addFormatted(severity, code, txCode, id string, c *parameters.Coding, part string, inMessage bool, format string, args ...any) {
	n.addLocated(c, codingIssue{part: part, inMessage: inMessage, Issue: outcome.Issue{Severity: severity, Code: code, TxCode: txCode, MessageID: id, Text: fmt.Sprintf(format, args...)}})
}

// addLocated adds an issue with the location of the affected part of the coding.
func (n *issueList) addLocated(c *parameters.Coding, one codingIssue) {
	if c != nil {
		one.Expression = []string{c.Path(one.part)}
	}
	n.list = append(n.list, one)
	n.size += len(one.Text)
}

func (n *issueList) hasErrors() bool { return slices.ContainsFunc(n.list, codingIssue.isError) }

func (n codingIssue) isError() bool { return n.Severity == "error" }

// codingValidator validates individual codings.
type codingValidator struct {
	issues      *issueList
	query       *Query
	definitions *definitions.Set
	valueSet    *definitions.ValueSet // nil: check the code system only
	budget      *budget.Budget
	supplements []string // canonicals of required supplements
	candidates  candidateFinder
	displays    displayChecker
	missing     missingDefinitions
}

// codingResult is the result for one coding.
type codingResult struct {
	coding     *parameters.Coding
	isMember   bool // whether the code is in the value set or, if there is none, in the code system
	codeSystem *definitions.CodeSystem
	entry      definitions.LocatedEntry
	display    []byte
	normalized []byte // code as written in the code system if its case differs; nil otherwise
	status     string
	inactive   bool
	deprecated bool
}

func (v *codingValidator) addNotInValueSet(c *parameters.Coding) {
	if v.valueSet == nil {
		return
	}
	severity, txCode, isOne := "error", "not-in-vs", v.query.CodeableConcept != nil
	if isOne {
		severity, txCode = "information", "this-code-not-in-vs"
	}
	for _, why := range v.candidates.mismatchReasons {
		v.issues.addLocated(c, codingIssue{inMessage: !isOne, Issue: outcome.Issue{Severity: severityMessageOnly, Text: why}})
	}
	v.issues.addFormatted(severity, "code-invalid", txCode, "None_of_the_provided_codes_are_in_the_value_set_one", c, "code", !isOne,
		"The provided code '%s' was not found in the value set '%s'", c, v.valueSet.DisplayName())
}

// missingDefinitions lists the definitions that codings need but that are not loaded.
type missingDefinitions struct {
	versions         []string                    // canonicals of code system versions
	systems          []string                    // URLs of code systems of which no version is loaded
	uncheckedSystems []string                    // canonicals of code systems with codes that were accepted without checking
	valueSets        []outcome.MissingDefinition // imported value sets
}

// isConcept reports whether the codings belong to a CodeableConcept, of which only one coding must be valid.
func (v *codingValidator) isConcept() bool { return v.query.CodeableConcept != nil }

// onlyVersionsMissing reports whether missing versions are the only reason why codings were not found.
func (v *validator) onlyVersionsMissing() bool {
	return len(v.codingValidator.missing.versions) > 0 && !slices.ContainsFunc(v.codingValidator.issues.list, func(n codingIssue) bool { return n.TxCode == "this-code-not-in-vs" })
}

// validate validates a coding. It returns an error if the value set is invalid.
func (v *codingValidator) validate(c *parameters.Coding) (codingResult, error) {
	d := codingResult{coding: c, entry: definitions.LocatedEntry{Entry: compose.UnknownEntry}}
	if err := v.budget.Charge(codingSteps + v.query.Versions.Cost() + len(v.definitions.Systems.Versions(c.System))); err != nil {
		return d, err
	}
	if c.System == "" || c.Code == "" {
		v.warnIncomplete(c)
		return d, nil
	}
	candidates, err := v.candidates.candidates(c)
	if err != nil {
		return d, err
	}
	choice, member, err := v.candidates.bestCandidate(c, candidates)
	if err != nil {
		return d, err
	}
	for _, n := range choice.issues {
		v.issues.addLocated(c, n)
	}
	if choice.missingVersion != "" {
		definitions.AppendUnique(&v.missing.versions, choice.missingVersion)
	}
	if choice.index != definitions.None {
		d.codeSystem = v.definitions.Systems.CodeSystems[choice.index]
	}
	if member != nil {
		d.isMember, d.entry = !choice.isSubstitute, member.LocatedEntry
	}
	if err = v.addIssues(c, &d, choice, member); err == nil && v.issues.size > maxIssueBytes {
		err = outcome.NewTooLong()
	}
	return d, err
}

// codingSteps is the cost in steps of validating a coding, without searching for it.
const codingSteps = 20

// warnIncomplete adds a warning about a coding without a system or a code, which may be valid in its original context.
func (v *codingValidator) warnIncomplete(c *parameters.Coding) {
	missingPart, text := "system", "Coding has no system. A code with no system has no defined meaning, and it cannot be validated. A system should be provided"
	switch {
	case c.Code == "" && c.System == "":
		missingPart, text = "system_or_code", "Coding has neither a system nor a code, so that there is nothing to validate. Both should be provided"
	case c.Code == "":
		missingPart, text = "code", "Coding has no code, so that it cannot be validated. A code should be provided"
	}
	v.issues.addFormatted("warning", "invalid", "invalid-data", "Coding_has_no_"+missingPart+"__cannot_validate", c, "", true, "%s", text)
	if c.Code != "" {
		v.addNotInValueSet(c)
	}
}

// addIssues adds the issues of a coding and sets its data in d.
func (v *codingValidator) addIssues(c *parameters.Coding, d *codingResult, choice versionChoice, member *memberEntry) error {
	cs := d.codeSystem
	switch {
	case cs == nil && choice.missingVersion == "" && (!choice.acceptsAnyCode || v.valueSet == nil) && v.findInLookupOnly(c, d): // the value set does not need the complete code system
	case cs == nil && d.isMember:
		v.warnUnchecked(c, choice.uncheckedVersion)
	case cs == nil:
		v.addUnknownSystem(c, choice.acceptsAnyCode)
	case cs.Content == definitions.ContentSupplement:
		v.issues.addFormatted("error", "invalid", "invalid-data", "CODESYSTEM_CS_NO_SUPPLEMENT", c, "system", true,
			"CodeSystem %s is a supplement, so can't be used as a value in Coding.system", cs.Canonical())
		d.codeSystem = nil
		return nil
	default:
		v.findInCodeSystem(c, d, choice.index)
	}
	if member != nil && member.isExcluded {
		d.isMember = false
		v.issues.addFormatted("error", "business-rule", "code-rule", "STATUS_CODE_WARNING_CODE", c, "code", true, "The concept '%s' is valid but is not active", c.Code)
	}
	// Membership is uncertain if the value set's code system or version is missing.
	if isUncertain := choice.missingVersion != "" && choice.index != definitions.None && d.entry.HasConcept(); !d.isMember && !isUncertain && !choice.acceptsAnyCode && v.valueSet != nil {
		v.addNotInValueSet(c)
	}
	if d.codeSystem != nil && d.entry.HasConcept() || d.entry.Row != 0 {
		return v.checkConcept(c, d)
	}
	return nil
}

// findInCodeSystem looks up a code in the code system with the given index.
func (v *codingValidator) findInCodeSystem(c *parameters.Coding, d *codingResult, index uint32) {
	cs := d.codeSystem
	at, ok := cs.Concepts.Locate([]byte(c.Code))
	switch {
	case ok:
		if !d.entry.HasConcept() {
			d.entry.CodeSystem, d.entry.Concept, d.entry.LocatedConcept = index, cs.Number(at), at
		}
		d.isMember = d.isMember || v.valueSet == nil
		v.checkVersion(c, cs)
		v.noteExpression(c, cs, at)
		return
	case cs.Content.IsPartial() && v.findInLookupOnly(c, d):
		return
	case cs.Content.IsPartial() || cs.Content != definitions.ContentComplete && d.entry.Row != 0:
		v.issues.addFormatted("warning", "code-invalid", "invalid-code", "UNKNOWN_CODE_IN_FRAGMENT", c, "code", false,
			"Unknown Code '%s' in the CodeSystem '%s' version '%s' - note that the code system is labeled as %s, so the code may be valid in some other fragment",
			c.Code, cs.URL, cs.Version, expansion.WithArticle(string(cs.Content)))
		d.isMember = d.isMember || v.valueSet == nil
		definitions.AppendUnique(&v.missing.uncheckedSystems, cs.URL) // another server may have the codes that are missing here
		return
	case !v.query.MembershipOnly:
		v.addUnknownCode(c, cs)
	}
	d.isMember = false
}

// addUnknownCode adds an issue for an unknown code, including the reason. For units, the reason is also a separate issue,
// because clients such as HAPI do not display diagnostics.
func (v *codingValidator) addUnknownCode(c *parameters.Coding, cs *definitions.CodeSystem) {
	id, text := cs.UnknownCode(c.Code)
	why := cs.Concepts.CodeExplainer.InvalidReason([]byte(c.Code))
	v.issues.addLocated(c, codingIssue{part: "code", inMessage: true, Issue: outcome.Issue{
		Severity: "error", Code: "code-invalid", TxCode: "invalid-code", MessageID: id, Text: text, Detail: why,
	}})
	if why != "" && cs.ReasonIssue {
		v.issues.addFormatted("information", "code-invalid", "invalid-code", "", c, "code", false, "%s", why)
	}
	if cs.Compositional && !cs.ReasonIssue {
		v.issues.addFormatted("information", "informational", "processing-note", "", c, "code", false,
			"The code system '%s' is compositional: codes may be expressions of a grammar, which this server does not support", cs.URL)
	}
}

// noteExpression adds an issue about the limits of the check of an expression of concepts, unless it is checked against a value
// set. The text is that of HL7's tests.
func (v *codingValidator) noteExpression(c *parameters.Coding, cs *definitions.CodeSystem, at codesystem.Concept) {
	if cs.Compositional && at.Code != nil && v.valueSet == nil {
		v.issues.addFormatted("information", "informational", "process-note", "", c, "code", false,
			"The expression is grammatically correct and the concepts are valid, but the expression has not been checked against the %s concept model (MRCM)", cs.Name)
	}
}

// findInLookupOnly reports whether a lookup-only substitute for a missing or incomplete code system has the code. It records
// that another server may have the complete code system.
func (v *codingValidator) findInLookupOnly(c *parameters.Coding, d *codingResult) bool {
	e, ok := v.definitions.Systems.LookupOnlyConcept(c)
	if !ok {
		return false
	}
	e.Row = d.entry.Row
	d.isMember, d.entry, d.codeSystem = d.isMember || v.valueSet == nil, e, v.definitions.Systems.CodeSystems[e.CodeSystem]
	definitions.AppendUnique(&v.missing.uncheckedSystems, c.System)
	return true
}

// checkVersion adds an issue if the coding lacks a version that its code system requires (R4 CodeSystem.versionNeeded).
func (v *codingValidator) checkVersion(c *parameters.Coding, cs *definitions.CodeSystem) {
	if cs.VersionNeeded && c.Version == "" && !v.query.MembershipOnly {
		v.issues.addFormatted("error", "required", "invalid-data", "", c, "version", true,
			"The code system '%s' requires a version, but the code '%s' has none", cs.URL, c.Code)
	}
}

// warnUnchecked adds a warning for an enumerated code with a missing code system or version. The code is valid, as in the
// expansion, but another server may be able to check it.
func (v *codingValidator) warnUnchecked(c *parameters.Coding, version string) {
	if v.query.MembershipOnly {
		return
	}
	reference := outcome.Canonical(c.System, version)
	definitions.AppendUnique(&v.missing.uncheckedSystems, reference)
	v.issues.addFormatted("warning", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true,
		"A definition for CodeSystem %s could not be found, so the code, which the value set enumerates, cannot be checked", reference)
}

// addUnknownSystem adds an issue for a missing code system. needed specifies whether the value set depends on it.
func (v *codingValidator) addUnknownSystem(c *parameters.Coding, needed bool) {
	if _, ok := v.definitions.ResolveValueSet(c.System, ""); ok {
		v.issues.addFormatted("error", "invalid", "invalid-data", "Terminology_TX_System_ValueSet2", c, "system", true,
			"The Coding references a value set, not a code system ('%s')", c.System)
		return
	}
	list := &v.missing.systems
	if needed {
		list = &v.missing.versions
	}
	definitions.AppendUnique(list, c.System)
	if v.query.MembershipOnly {
		return
	}
	if !isAbsolute(c.System) {
		v.issues.addFormatted("error", "invalid", "invalid-data", "Terminology_TX_System_Relative", c, "system", true,
			"Coding.system must be an absolute reference, not a local reference")
	}
	if c.Version != "" {
		v.issues.addLocated(c, newUnknownVersionIssue(c, c.Version, nil))
		return
	}
	v.issues.addFormatted("error", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true,
		"A definition for CodeSystem %s could not be found, so the code cannot be validated", c.System)
}

// isAbsolute reports whether a URI has a scheme (RFC 3986 §4.3), which Coding.system requires (R4 §2.24.0.1, uri).
func isAbsolute(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/?#")
}

// checkConcept checks the display of a coding, and the status of its concept in the code system and the value set.
func (v *codingValidator) checkConcept(c *parameters.Coding, d *codingResult) error {
	known := d.codeSystem != nil && d.entry.HasConcept()
	texts, err := v.texts(d, known)
	if err != nil {
		return err
	}
	if i := v.displays.languages.PreferredOrFirstDisplay(texts); i >= 0 {
		d.display = texts[i].Value
	}
	if known {
		v.checkCase(c, d)
	}
	v.checkAbstract(c, d)
	switch {
	case v.query.MembershipOnly:
		return nil
	case known && d.codeSystem.Content == definitions.ContentLookupOnly:
		v.displays.checkLookupOnly(c, d.display)
		return nil
	}
	if c.Display != "" && d.codeSystem != nil && d.entry.HasConcept() {
		texts = d.codeSystem.Concepts.FormerTexts.AppendFormerTexts(texts, d.entry.LocatedConcept)
	}
	v.displays.check(c, texts, v.definitions.FlagsOf(d.entry)&codesystem.FlagUserAssigned != 0)
	if known && !(d.isMember && selectsInactive(v.valueSet)) {
		v.checkStatus(c, d)
	}
	if v.valueSet != nil && d.isMember && v.definitions.IsMarkedDeprecated(d.entry.Entry) {
		v.issues.addFormatted("warning", "business-rule", "code-comment", "CONCEPT_DEPRECATED_IN_VALUESET", c, "code", false,
			"The presence of the concept '%s' in the system '%s' in the value set %s is marked with a status of deprecated and its use should be reviewed",
			c.Code, c.System, v.valueSet.Canonical())
	}
	return nil
}

// texts returns the displays and designations of a concept, including those from required supplements.
func (v *codingValidator) texts(d *codingResult, known bool) ([]codesystem.Text, error) {
	var supplements []definitions.Supplement
	if known {
		cs := d.codeSystem
		if err := v.budget.Charge(len(v.supplements) * (1 + v.definitions.Systems.CountSupplements(cs.URL))); err != nil {
			return nil, err
		}
		for _, s := range v.definitions.Systems.SupplementsTo(cs, v.supplements) {
			supplements = append(supplements, definitions.Supplement{CodeSystem: d.entry.CodeSystem, Supplement: s})
		}
	}
	language := ""
	if v.valueSet != nil {
		language = v.valueSet.Language
	}
	texts := v.definitions.AppendTexts(nil, d.entry, language, supplements)
	if known {
		var err error
		if texts, err = v.definitions.AppendCommonDisplay(texts, d.entry, func(rows int) error { return v.budget.Charge(rows / budget.PlainBytesPerStep) }); err != nil {
			return nil, err
		}
	}
	return texts, v.budget.ChargeComparisons(texts)
}

// checkCase sets the normalized code, and adds an issue if the code is written in a different case than in the code system.
func (v *codingValidator) checkCase(c *parameters.Coding, d *codingResult) {
	code := d.codeSystem.Concepts.Code(d.entry.LocatedConcept)
	if bytes.Equal(code, []byte(c.Code)) {
		return
	}
	if d.normalized = code; !codesystem.EqualFold(code, []byte(c.Code)) {
		return // a code with its term
	}
	v.issues.addFormatted("information", "business-rule", "code-rule", "CODE_CASE_DIFFERENCE", c, "code", false,
		"The code '%s' differs from the correct code '%s' by case. Although the code system '%s' is case insensitive, implementers are strongly encouraged to use the correct case anyway",
		c.Code, code, d.codeSystem.Canonical())
}

// checkAbstract adds an issue if the concept is abstract and the request rejects abstract codes.
func (v *codingValidator) checkAbstract(c *parameters.Coding, d *codingResult) {
	if !v.query.NotAbstract || !d.isMember || v.definitions.FlagsOf(d.entry)&codesystem.FlagAbstract == 0 {
		return
	}
	d.isMember = false
	if !v.query.MembershipOnly {
		v.issues.addFormatted("error", "business-rule", "code-rule", "ABSTRACT_CODE_NOT_ALLOWED", c, "code", true,
			"Code '%s#%s' is abstract, and not allowed in this context", c.System, c.Code)
	}
	v.addNotInValueSet(c)
}

// checkStatus adds issues if a concept is inactive or deprecated.
func (v *codingValidator) checkStatus(c *parameters.Coding, d *codingResult) {
	flags := v.definitions.FlagsOf(d.entry)
	if flags&codesystem.FlagHasStatus != 0 {
		d.status = v.definitions.Systems.CodeSystems[d.entry.CodeSystem].Concepts.Annotations.Status(d.entry.LocatedConcept)
	}
	switch {
	case flags&codesystem.FlagInactive != 0:
		d.inactive = true
		v.issues.addFormatted("warning", "business-rule", "code-comment", "INACTIVE_CONCEPT_FOUND", c, "", true,
			"The concept '%s' has a status of %s and its use should be reviewed", c.Code, inactiveStatus(d.status))
	case d.status == "deprecated" && d.isMember:
		d.deprecated = true
		v.issues.addFormatted("warning", "business-rule", "code-comment", "DEPRECATED_CONCEPT_FOUND", c, "", true,
			"The concept '%s' is deprecated and its use should be reviewed", c.Code)
	}
}

// selectsInactive reports whether a value set selects concepts by their status or with an expression constraint, and so contains
// inactive concepts on purpose. HL7's tests for SNOMED CT and LOINC require no warning then.
func selectsInactive(vs *definitions.ValueSet) bool {
	return vs != nil && slices.ContainsFunc(vs.Include, func(set definitions.ConceptSet) bool {
		return slices.ContainsFunc(set.Filters, func(f definitions.Filter) bool { return slices.Contains(selectingProperties, f.Property) })
	})
}

// selectingProperties are the properties of filters that may select inactive concepts on purpose. STATUS is the status in LOINC.
var selectingProperties = []string{"inactive", "constraint", "STATUS"}

// inactiveStatus appends "and inactive" to a status, except LOINC's DISCOURAGED, which implies it.
func inactiveStatus(status string) string {
	switch status {
	case "", "inactive":
		return "inactive"
	case "DISCOURAGED":
		return status
	}
	return status + " and inactive"
}
