package validate

import (
	"bytes"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

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
