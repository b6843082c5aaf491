package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// summarize makes the result.
func (v *validator) summarize(results []codingResult) *ValidationResult {
	r := &ValidationResult{UnknownVersions: v.checks.absent.versions, UnknownSystems: v.checks.absent.systems, concept: v.checks.validation.CodeableConcept}
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

// lacking returns the definitions for lack of which codings were not found.
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

// missingSystems returns the code systems of codings whose concepts are not here.
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
