package search

import (
	"context"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// maxLookUps is how many pages of the FHIR server are read for one link of a chain.
const maxLookUps = 10

// each calls a function with each resource that a search of the client's own would find.
func (x *Searches) each(ctx context.Context, resourceType string, p smart.Parameter, do func(*message.Entry) error) error {
	parameters := []smart.Parameter{{Name: "_count", Value: "200"}}
	if p.Name != "_type" { // the type's name is in the path
		parameters = append(parameters, p)
	}
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	s, err := newPlan(ctx, x, x.each, message.Get(resourceType, ""), i)
	if err != nil {
		return err
	}
	s.setJudged(true)
	return s.each(ctx, maxLookUps, do)
}

// each calls a function with each match, all of which must be on so many pages of the FHIR server.
func (s *plan) each(ctx context.Context, pages int, do func(*message.Entry) error) error {
	m, err := newMerge(s, s.start())
	if err != nil {
		return err
	}
	m.most = pages * len(s.branches)
	e, err := m.next(ctx)
	for ; err == nil && e != nil; e, err = m.next(ctx) {
		if err := do(e); err != nil {
			return err
		}
	}
	if err == nil && slices.ContainsFunc(m.sources, func(from source) bool { return !from.next.Done || from.next.Cut }) {
		err = message.TooCostly("The chained search finds too much in between under these scopes.")
	}
	return err
}
