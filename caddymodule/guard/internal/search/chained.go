package search

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// chained is what a chain becomes: itself, if the client may search all that it looks at, or else a search for the
// resources that its own searches have found.
func (r searchRules) chained(ctx context.Context, p smart.Parameter) ([]smart.Parameter, error) {
	c, err := readChain(r.x, r.resourceType, p)
	if err != nil {
		return nil, err
	}
	if r.isOwn(c) {
		return []smart.Parameter{p}, nil
	}
	ids, err := r.lookedUp(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case len(ids) == 0:
		r.s.nothing = true
		return nil, nil
	case c.reverse:
		return []smart.Parameter{{Name: "_id", Value: strings.Join(ids, ",")}}, nil
	}
	return []smart.Parameter{{Name: c.by.Name, Value: strings.Join(ids, ",")}}, nil
}

// isOwn reports whether the client may search all resources of all types that a chain looks at. Where the FHIR server
// goes by a reference that a site has defined, its own definition says.
func (r searchRules) isOwn(c chain) bool {
	return !c.by.Own && !slices.ContainsFunc(c.types, func(t string) bool {
		if !r.x.Judge.Rights().Whole(t, smart.Search) {
			return true
		}
		if strings.HasPrefix(c.rest.Name, "_has:") || strings.Contains(c.rest.Name, ".") {
			next, err := readChain(r.x, t, c.rest)
			return err != nil || !r.isOwn(next)
		}
		name, modifier, _ := strings.Cut(c.rest.Name, ":")
		return telling[name] != "" || checkPlain(r.x, t, name, modifier, c.rest.Value) != nil
	})
}

// granted are the types for which there is a scope. Without any they are as they were, to be refused.
func (r searchRules) granted(types []string) []string {
	some := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return len(r.x.Judge.Rights().For(t, smart.Search)) == 0 })
	if len(some) == 0 {
		return types
	}
	return some
}

// lookedUp are the resources to which a chain leads, or those that it comes from.
func (r searchRules) lookedUp(ctx context.Context, c chain) ([]string, error) {
	var ids []string
	for _, t := range r.granted(c.types) {
		if !isAsked(r.x, t, c.rest.Name) {
			return nil, message.Invalid(message.ErrSearch, "The chained search parameter is none of FHIR R4's for %s.", t)
		}
		if c.rest.Name == "_type" && !slices.Contains(strings.Split(c.rest.Value, ","), t) {
			continue
		}
		err := r.s.find(ctx, t, c.rest, func(e *message.Entry) error {
			for _, id := range c.named(r.resourceType, e.Parsed) {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			if len(ids) > maxChained {
				return message.TooCostly("The chained search finds more than %d resources of the type in between under these scopes.", maxChained)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}
