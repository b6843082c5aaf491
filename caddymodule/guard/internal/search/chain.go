package search

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

const (
	// maxLinks is how many links a chain may have.
	maxLinks = 4
	// maxTargets is to how many types a chain may go that names none.
	maxTargets = 4
	// maxChained is how many resources may be found in the place of a link.
	maxChained = 100
)

// readChain reads subject:Patient.name, subject.name or _has:Observation:subject:code.
func readChain(known searchparam.Set, resourceType string, p smart.Parameter) (chain, error) {
	if strings.Count(p.Name, ".")+strings.Count(p.Name, "_has:") > maxLinks {
		return chain{}, message.TooCostly("A chained search may have %d links at most under these scopes.", maxLinks)
	}
	if rest, ok := strings.CutPrefix(p.Name, "_has:"); ok {
		return readHas(known, resourceType, rest, p.Value)
	}
	first, rest, _ := strings.Cut(p.Name, ".")
	name, target, typed := strings.Cut(first, ":")
	c := chain{rest: smart.Parameter{Name: rest, Value: p.Value}}
	var ok bool
	c.by, ok = known.Lookup(resourceType, name)
	if !ok || c.by.Kind != searchparam.Reference || rest == "" || typed && !interaction.IsType(target) {
		return c, message.Invalid(message.ErrSearch, "The chained search parameter is none of FHIR R4's for the type.")
	}
	if typed {
		c.types = []string{target}
		return c, nil
	}
	c.types = slices.DeleteFunc(targets(c.by), func(t string) bool { return !isAsked(known, t, rest) })
	if len(c.types) == 0 || len(c.types) > maxTargets {
		return c, message.TooCostly("Name the type that the chain goes to under these scopes, as in %s:Type.%s.", name, rest)
	}
	return c, nil
}

func readHas(known searchparam.Set, resourceType, parts, value string) (chain, error) {
	of, parts, _ := strings.Cut(parts, ":")
	by, rest, _ := strings.Cut(parts, ":")
	c := chain{types: []string{of}, rest: smart.Parameter{Name: rest, Value: value}, reverse: true}
	var ok bool
	c.by, ok = known.Lookup(of, by)
	if !ok || c.by.Kind != searchparam.Reference || !interaction.IsType(of) || !interaction.IsType(resourceType) || rest == "" {
		return c, message.Invalid(message.ErrSearch, "The parameter _has names a type, a reference and a parameter, as in _has:Observation:subject:code.")
	}
	return c, nil
}

// targets are the types to which a reference may be.
func targets(p searchparam.Parameter) []string {
	var only []string
	for _, path := range p.Paths {
		if path.Target == "" {
			return slices.Clone(p.Targets)
		}
		only = append(only, path.Target)
	}
	return only
}

// isAsked reports whether resources of a type can be asked what a chain goes on with.
func isAsked(known searchparam.Set, resourceType, rest string) bool {
	if strings.HasPrefix(rest, "_has:") {
		return true
	}
	first, _, _ := strings.Cut(rest, ".")
	name, _, _ := strings.Cut(first, ":")
	_, ok := known.Lookup(resourceType, name)
	return ok || rest == "_type"
}

// named is a resource that a chain has found, or are those of a type to which it refers.
func (c chain) named(resourceType string, res resource.Resource) []string {
	if !c.reverse {
		return []string{res.Type + "/" + res.ID}
	}
	var ids []string
	for _, path := range c.by.Paths {
		for element := range res.Values(path) {
			if to, _, ok := res.Refers(element); ok && to.Type == resourceType && to.Base == "" {
				ids = append(ids, to.ID)
			}
		}
	}
	return ids
}

// chained returns the parameter that replaces a chain: itself, if the client may search all that it looks at, or else a search for the
// resources that its own searches have found.
func (r searchRules) chained(ctx context.Context, p smart.Parameter) (effects, error) {
	c, err := readChain(r.x.Parameters, r.resourceType, p)
	if err != nil {
		return effects{}, err
	}
	if r.isOwn(c) {
		return effects{passed: []smart.Parameter{p}}, nil
	}
	ids, err := r.lookedUp(ctx, c)
	switch {
	case err != nil:
		return effects{}, err
	case len(ids) == 0:
		return effects{chained: true, nothing: true}, nil
	}
	by := smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")}
	if !c.reverse {
		by.Name = c.by.Name
	}
	return effects{chained: true, passed: []smart.Parameter{by}}, nil
}

// isOwn reports whether the client may search all resources of all types that a chain looks at. Where the FHIR server
// goes by a reference that a site has defined, its own definition says.
func (r searchRules) isOwn(c chain) bool {
	return !c.by.Own && !slices.ContainsFunc(c.types, func(t string) bool {
		if !r.x.Judge.Rights().Whole(t, smart.Search) {
			return true
		}
		if strings.HasPrefix(c.rest.Name, "_has:") || strings.Contains(c.rest.Name, ".") {
			next, err := readChain(r.x.Parameters, t, c.rest)
			return err != nil || !r.isOwn(next)
		}
		name, modifier, _ := strings.Cut(c.rest.Name, ":")
		return telling[name] != "" || checkPlain(r.x.Parameters, t, name, modifier, c.rest.Value) != nil
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
		if !isAsked(r.x.Parameters, t, c.rest.Name) {
			return nil, message.Invalid(message.ErrSearch, "The chained search parameter is none of FHIR R4's for %s.", t)
		}
		if c.rest.Name == "_type" && !slices.Contains(strings.Split(c.rest.Value, ","), t) {
			continue
		}
		err := r.x.each(ctx, t, c.rest, func(e *message.Entry) error {
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
