package compose

import "github.com/caddy-fhir/caddy-fhir/terminology/budget"

// expanding returns what expands value sets of a library by no rules, with a budget or without bounds.
func (l *Library) expanding(b *budget.Budget) *Expander {
	return &Expander{Library: l.set, Cache: l.expansions, Rules: &Rules{}, Budget: b}
}
