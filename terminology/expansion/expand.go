package expansion

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// New expands a value set.
func New(l *definitions.Set, expansions *compose.CodeListCache, q Query, b *budget.Budget) (*Expansion, error) {
	x := &Expansion{query: q}
	err := x.query.Check()
	if err != nil {
		return nil, err
	}
	if x.Library, x.valueSet, err = expansions.ValueSetFor(l, &x.query.ValueSetRef, &x.query.Rules, b); err != nil {
		return nil, err
	}
	if x.Library.Use(func() { err = x.expand(expansions, b) }); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *Expansion) expand(expansions *compose.CodeListCache, b *budget.Budget) (err error) {
	q := &x.query
	if err := q.Adopt(x.valueSet.Defaults); err != nil {
		return err
	}
	e := &compose.Expander{Library: x.Library, Cache: expansions, Rules: &q.Rules, Budget: b}
	if x.List, err = e.Codes(x.valueSet); err != nil {
		return err
	}
	if languages := q.Language.Preferred(x.valueSet); languages != "" {
		x.languages = codesystem.ParseLanguages(languages)
	}
	if err := x.choosePage(b); err != nil {
		return err
	}
	if limit := q.Limits.Most(); len(x.page) > limit && q.subset.hasCodes() {
		return tooCostly(x.valueSet, limit)
	}
	supplements := len(x.List.Supplements)
	if err := b.Spend(len(x.page) * (supplements + (len(q.Designations)+len(q.Properties))/askedPerStep)); err != nil {
		return err
	}
	x.detailed = q.wantsDesignations() || len(q.Properties) > 0 || !x.languages.None() || supplements > 0
	return nil
}

// askedPerStep is the number of requested designations and properties compared in one step, for each code.
const askedPerStep = 4

// choosePage finds the requested entries, and how many match in all.
func (x *Expansion) choosePage(b *budget.Budget) (err error) {
	if filter := textindex.NewFilter(x.query.Filter, x.Library.Synonyms()); filter != nil {
		from, to := x.query.window(maxInt32)
		x.page, x.total, err = compose.Search(x.Library, x.List, filter, x.languages.List(), from, to, b)
		x.corrected = filter.Corrected()
		return err
	}
	from, to := x.query.window(len(x.List.Entries))
	x.page, x.total = x.List.Entries[from:to], len(x.List.Entries)
	return nil
}
