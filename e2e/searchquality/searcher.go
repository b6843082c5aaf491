package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// pageSize is the number of hits on a page, as in a pick list.
const pageSize = 10

type searcher struct {
	library  *terminology.Library
	valueSet string
	codes    []string // all codes of the value set, sorted
}

// answer is the result of a query.
type answer struct {
	testQuery
	rank  int              // rank of the first wanted hit, from 1; 0 if there is none
	hit   expansion.Code   // the first wanted hit
	first []expansion.Code // hits on the first page
	total int
}

// newSearcher loads the definitions and all codes of the value set.
func newSearcher(ctx context.Context, valueSet string, o definitions.Options) (*searcher, error) {
	library, err := terminology.Load(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &searcher{library: library, valueSet: valueSet}
	all, err := s.expand(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	for c := range all.Codes() {
		s.codes = append(s.codes, c.Code)
	}
	slices.Sort(s.codes)
	return s, nil
}

// expand expands the value set with a filter. If count is nil, it requests all codes.
func (s *searcher) expand(ctx context.Context, filter string, count *int) (*expansion.Expansion, error) {
	return s.library.Expand(ctx, expansion.Query{
		ValueSetRef:   expansion.ValueSetRef{URL: s.valueSet},
		Page:          expansion.Page{Filter: filter, Count: count},
		Limits:        expansion.Limits{Entries: 1 << 22},
		ExcludeNested: parameters.Yes,
	})
}

// check returns an error that lists the wanted codes that are not in the value set.
func (s *searcher) check(questions []testQuery) error {
	var wrong []error
	for _, q := range questions {
		for _, w := range q.wanted {
			prefix, below := strings.CutSuffix(w, "*")
			at, found := slices.BinarySearch(s.codes, prefix)
			if !found && !(below && at < len(s.codes) && strings.HasPrefix(s.codes[at], prefix)) {
				wrong = append(wrong, fmt.Errorf("%q wants %s, which is not there", q.query, w))
			}
		}
	}
	return errors.Join(wrong...)
}

func (s *searcher) askAll(ctx context.Context, questions []testQuery) ([]answer, error) {
	answers := make([]answer, 0, len(questions))
	for _, q := range questions {
		a, err := s.ask(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", q.query, err)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// ask requests the first page for a query. If no wanted code is on the page, it also requests the complete expansion.
func (s *searcher) ask(ctx context.Context, q testQuery) (answer, error) {
	a := answer{testQuery: q}
	count := pageSize
	page, err := s.expand(ctx, q.query, &count)
	if err != nil {
		return a, err
	}
	a.first, a.total = slices.Collect(page.Codes()), page.Total()
	if a.find(page); a.rank > 0 || a.total <= pageSize {
		return a, nil
	}
	full, err := s.expand(ctx, q.query, nil)
	if err == nil {
		a.find(full)
	}
	return a, err
}

// find sets the rank and hit of the first wanted code.
func (a *answer) find(hits *expansion.Expansion) {
	rank := 0
	for c := range hits.Codes() {
		if rank++; a.wants(c) {
			a.rank, a.hit = rank, c
			return
		}
	}
}
