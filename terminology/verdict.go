package terminology

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// answer validates the codings and returns the Parameters that say what was found.
func (v *validator) answer(p *validation) ([]byte, error) {
	var verdicts []verdict
	codings := p.codings
	if p.code != nil && p.infer && v.valueSet != nil && p.code.system == "" {
		if err := v.infer(&codings[0]); err != nil {
			return nil, err
		}
		if codings[0].system == "" {
			verdicts, codings = []verdict{{coding: &codings[0]}}, nil
		}
	}
	for i := range codings {
		d, err := v.validate(&codings[i])
		if err != nil {
			if err := v.missingValueSet(err); err != nil {
				return nil, err
			}
			return v.write(p, nil), nil
		}
		verdicts = append(verdicts, d)
	}
	member := func(d verdict) bool { return d.member }
	if v.concept && v.valueSet != nil && !slices.ContainsFunc(verdicts, member) && !v.onlyVersions() && !noCodes(codings) {
		v.notes = append(v.notes, note{told: true, Issue: Issue{
			Severity: "error", Code: "code-invalid", TxCode: "not-in-vs", MessageID: "TX_GENERAL_CC_ERROR_MESSAGE",
			Text: fmt.Sprintf("No valid coding was found for the value set '%s'", v.valueSet.called()),
		}})
	}
	if v.valueSet != nil {
		v.standings(verdicts)
	} else if len(verdicts) == 0 {
		v.notes = append(v.notes, note{told: true, Issue: Issue{
			Severity: "error", Code: "code-invalid", TxCode: "invalid-code", Text: "There is no coding of the code system",
		}})
	}
	return v.write(p, verdicts), nil
}

// noCodes reports whether there are codings, but none has a code: nothing is to be said of what is not there.
func noCodes(codings []coding) bool {
	return len(codings) > 0 && !slices.ContainsFunc(codings, func(c coding) bool { return c.code != "" })
}

// onlyVersions reports whether the codings were not looked for, because of their versions.
func (v *validator) onlyVersions() bool {
	return len(v.unknown) > 0 && !slices.ContainsFunc(v.notes, func(n note) bool { return n.TxCode == "this-code-not-in-vs" })
}

// infer finds the system of a code by the value set.
func (v *validator) infer(c *coding) error {
	x, err := (&expander{library: v.library, rules: &v.rules, budget: v.budget}).expansion(v.valueSet)
	if err != nil {
		return v.missingValueSet(err)
	}
	if err := v.budget.spend(len(x.entries) / 8); err != nil {
		return err
	}
	var systems []string
	for _, e := range x.entries {
		if url := v.library.systems[v.library.systemOf(e)].url; v.library.isCode(e, []byte(c.code)) && !slices.Contains(systems, url) {
			systems = append(systems, url)
		}
	}
	if len(systems) == 1 {
		c.system = systems[0]
		return nil
	}
	id, reason := "UNABLE_TO_INFER_CODESYSTEM", "value set expansion has no matches"
	if len(systems) > 1 {
		slices.Sort(systems)
		id, reason = "Unable_to_resolve_system__value_set_has_multiple_matches", "value set expansion has multiple matches: ["+strings.Join(systems, ", ")+"]"
	}
	v.notInValueSet(c)
	v.note("error", "not-found", "cannot-infer", id, c, "code", true, fmt.Sprintf(
		"The System URI could not be determined for the code '%s' in the ValueSet '%s': %s", c.code, v.valueSet.canonical(), reason))
	return nil
}

// isCode reports whether a code means an entry: in any case, where the code system says that case does not matter.
func (l *Library) isCode(e entry, code []byte) bool {
	return bytes.Equal(l.code(e), code) ||
		e.concept != none && !l.codeSystems[e.codeSystem].caseSensitive && equalFold(l.code(e), code)
}

// write writes the Parameters of an answer.
func (v *validator) write(p *validation, verdicts []verdict) []byte {
	out := newParametersWriter()
	v.valid = slices.ContainsFunc(verdicts, func(d verdict) bool { return d.member }) &&
		!slices.ContainsFunc(v.notes, func(n note) bool { return n.Severity == "error" })
	out.boolean("result", v.valid)
	if p.concept != nil {
		out.raw("codeableConcept", "valueCodeableConcept", p.concept)
	}
	if d := v.shown(verdicts); d != nil && v.concept && !d.member {
		out.optional("version", "valueString", d.codeSystem.version)
	} else if d != nil {
		out.verdict(d)
	}
	for _, canonical := range v.unknown {
		out.text("x-caused-by-unknown-system", "valueCanonical", canonical)
	}
	for _, system := range v.missing {
		out.text("x-unknown-system", "valueCanonical", system)
	}
	var messages []string
	var issues []Issue
	for _, n := range v.notes {
		issues = append(issues, n.Issue)
		worth := n.Severity == "error" || v.valid || strings.HasPrefix(n.MessageID, lacksPrefix)
		if n.told && worth && !slices.Contains(messages, n.Text) {
			messages = append(messages, n.Text)
		}
	}
	if len(messages) > 0 {
		out.text("message", "valueString", strings.Join(messages, "; "))
	}
	if len(issues) > 0 {
		out.raw("issues", "resource", appendOutcome(nil, issues))
	}
	return out.end()
}

// shown returns the coding that the answer tells of: of several, the first that is valid.
func (v *validator) shown(verdicts []verdict) *verdict {
	for i := range verdicts {
		if verdicts[i].member {
			return &verdicts[i]
		}
	}
	if len(verdicts) == 0 || v.concept && (!v.onlyVersions() || verdicts[0].codeSystem == nil) {
		return nil
	}
	return &verdicts[0]
}

// verdict writes what was found of a coding.
func (w *parametersWriter) verdict(d *verdict) {
	w.optional("code", "valueCode", d.coding.code)
	w.optional("system", "valueUri", d.coding.system)
	if d.codeSystem != nil {
		w.optional("version", "valueString", d.codeSystem.version)
	}
	w.optional("display", "valueString", string(d.display))
	w.optional("normalized-code", "valueCode", string(d.normalized))
	if d.inactive {
		w.boolean("inactive", true)
	}
	if d.status != "" && d.status != "inactive" && (d.inactive || d.deprecated) {
		w.text("status", "valueCode", d.status)
	}
}
