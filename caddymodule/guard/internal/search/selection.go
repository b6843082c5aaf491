package search

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Selection is a search of the client's own for the one resource that criteria mean.
type Selection struct {
	x    *Searches
	plan plan
	// Parameters are the criteria as the rules for searches have left them.
	Parameters []smart.Parameter
	// nothing: a chain has found nothing, so neither do the criteria.
	Nothing bool
	// selects: they select resources, and nothing else.
	Selects bool
}

// Selecting plans a selection among the resources of a type.
func (x *Searches) Selecting(ctx context.Context, resourceType string, parameters []smart.Parameter) (*Selection, error) {
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	p, err := newPlan(ctx, x, message.Get(resourceType, ""), i)
	if err != nil {
		return nil, err
	}
	return &Selection{x, p, p.query.parameters, p.query.nothing, p.along.includes == (includes{}) && !p.response.onlyTotal && p.response.count == 0}, nil
}

var errSeveral = errors.New("several resources match the criteria")

// One is the id of the resource that is meant, among those that the client may find; empty if there is none. Several are
// refused.
func (of *Selection) One(ctx context.Context) (string, error) {
	p := of.plan
	p.response.count, p.disclosure.judged = 2, true
	var found []message.Entry
	err := of.x.eachOf(ctx, p, of.x.Requests, func(e *message.Entry) error {
		if found = append(found, *e); len(found) > 1 {
			return errSeveral
		}
		return nil
	})
	if err != nil && !errors.Is(err, errSeveral) {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0].Parsed.ID, nil
	}
	return "", &guard.Error{Status: http.StatusPreconditionFailed, Description: "Several resources match the criteria.", Err: errSeveral}
}

// maxLookUps is how many pages of the FHIR server are read for one link of a chain.
const maxLookUps = 10

// each calls a function with each resource that a search of the client's own would find.
func (x *Searches) each(ctx context.Context, resourceType string, p smart.Parameter, do func(*message.Entry) error) error {
	parameters := []smart.Parameter{{Name: "_count", Value: "200"}}
	if p.Name != "_type" { // the type's name is in the path
		parameters = append(parameters, p)
	}
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: resourceType, Parameters: parameters}
	found, err := newPlan(ctx, x, message.Get(resourceType, ""), i)
	if err != nil {
		return err
	}
	found.disclosure.judged = true
	return x.eachOf(ctx, found, maxLookUps, do)
}

// eachOf calls a function with each match of a plan. It fails if the matches fill more than so many pages of the FHIR server.
func (x *Searches) eachOf(ctx context.Context, p plan, pages int, do func(*message.Entry) error) error {
	m := newMerge(x, p, paging.Position{})
	m.most = pages * len(p.branches)
	e, err := m.next(ctx)
	for ; err == nil && e != nil; e, err = m.next(ctx) {
		if err := do(e); err != nil {
			return err
		}
	}
	if err == nil && slices.ContainsFunc(m.sources, func(from source) bool { return !from.next.Done || from.next.Cut || len(from.left) > 0 }) {
		err = message.TooCostly("The chained search finds too much in between under these scopes.")
	}
	return err
}
