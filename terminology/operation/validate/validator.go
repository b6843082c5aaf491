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

// newValidator prepares validation against a value set, or against code systems if it is nil.
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

// run validates codings against a value set of the library, or against their code systems if it is nil.
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

// systemsOf returns the systems that a code has in the value set: those of its expansion, or, as grammars have more codes
// than an expansion lists, those in which the code is valid.
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
		if err := v.checks.budget.Spend(codingSteps + len(l.Systems.Versions(system))); err != nil {
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

// systemsNamed returns the systems that the value set and its imports name, and whether one of them is a grammar.
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
	return systems, hasGrammar, v.checks.budget.Spend(len(sets))
}

// systemsListed returns the systems that a code has in the expansion of the value set.
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
	return systems, v.checks.budget.Spend(len(x.Entries) / 8)
}

// isCode reports whether a code means an entry, ignoring case if its code system does.
func isCode(d *definitions.Set, e definitions.Entry, code []byte) bool {
	return bytes.Equal(d.Code(e), code) ||
		e.IsKnown() && !d.Systems.CodeSystems[e.CodeSystem].CaseSensitive && codesystem.EqualFold(d.Code(e), code)
}

// summarize makes the result.
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

// shown returns the coding that the result is about: the first valid one of several.
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

// standings notes which of the definitions used are deprecated, draft and so on.
func (v *validator) standings(list []codingResult) {
	told := map[string]bool{}
	tell := func(kind string, d *definitions.Definition) {
		name := d.Standing(v.checks.valueSet)
		if text := fmt.Sprintf("Reference to %s %s %s", name, kind, d.Canonical()); name != "" && !told[text] {
			told[text] = true
			v.checks.notes.note("information", "business-rule", "status-check", "MSG_"+strings.ToUpper(name), nil, "", false, text)
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
	part string // of the coding; Coding.place says where that is
	told bool   // also part of the message
}

// onlyTold is the severity of texts that are part of the message but not an issue, as on other servers.
const onlyTold = ""

// notes are the issues of all codings of one validation.
type notes struct {
	list []note
	size int // of their texts, in bytes
}

// maxNoted bounds the size of all notes, in bytes: a request's code system may have a hundred thousand displays to
// list.
const maxNoted = 4 << 20

// note adds an issue about part of a coding.
func (n *notes) note(severity, code, txCode, id string, c *parameters.Coding, part string, told bool, text string) {
	n.place(c, note{part: part, told: told, Issue: outcome.Issue{Severity: severity, Code: code, TxCode: txCode, MessageID: id, Text: text}})
}

// place adds a note, located at its part of a coding.
func (n *notes) place(c *parameters.Coding, one note) {
	if c != nil {
		one.Expression = []string{c.Place(one.part)}
	}
	n.list = append(n.list, one)
	n.size += len(one.Text)
}

func (n *notes) failed() bool { return slices.ContainsFunc(n.list, note.isError) }

func (n note) isError() bool { return n.Severity == "error" }
