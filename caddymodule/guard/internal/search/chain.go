package search

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// telling are the parameters that tell of other resources, with the reason.
var telling = map[string]string{
	"_filter":        "it can ask about any resource",
	"_list":          "it tells what a List holds",
	"_query":         "only the FHIR server knows what it asks",
	"_graph":         "only the FHIR server knows what it brings along",
	"_text":          "the order of what it finds tells how common words are in all records",
	"_content":       "the order of what it finds tells how common words are in all records",
	"_score":         "it tells how common words are in all records",
	"_contained":     "a resource inside another one cannot be judged by itself",
	"_containedType": "a resource inside another one cannot be judged by itself",
}

// modifiers are those that compare what is in the resource itself, by kinds of parameters; all kinds have :missing.
var modifiers = map[searchparam.Kind][]string{
	searchparam.String:    {"exact", "contains", "nickname"},
	searchparam.Token:     {"not", "text", "of-type", "above", "below", "in", "not-in"},
	searchparam.URI:       {"above", "below"},
	searchparam.Reference: {"identifier"},
}

// checkPlain refuses what compares more than what is in a resource of the type itself. The modifiers that ask a
// terminology do so of value sets, which are about no patient; but named by an id one could be any resource.
func checkPlain(x *Searches, resourceType, name, modifier, value string) error {
	parameter, ok := x.Parameters.Lookup(resourceType, name)
	switch {
	case !ok:
		return unknown(resourceType, name)
	case name == "_id" && modifier != "":
		// HAPI's server finds nothing by _id:not where no resource has the id, and else all: it tells which ids are taken.
		return message.Forbidden(message.ErrOracle, "_id takes no modifier under these scopes: it would tell which ids there are.")
	case modifier == "", modifier == "missing":
		return nil
	case parameter.Kind == searchparam.Reference && interaction.IsType(modifier):
		return nil
	case name == "_id": // HAPI finds nothing by _id:not of an id that nobody has
		return message.Forbidden(message.ErrOracle, "The modifier :%s of _id is not allowed under these scopes: it may tell which ids there are.", modifier)
	case !slices.Contains(modifiers[parameter.Kind], modifier):
		return message.Forbidden(message.ErrOracle, "The modifier :%s of %s is not allowed under these scopes: it may look at other resources.", modifier, name)
	case (modifier == "in" || modifier == "not-in") && !strings.Contains(value, ":"):
		return message.Forbidden(message.ErrOracle, "The modifier :%s needs the URL of a value set under these scopes.", modifier)
	}
	return nil
}

// unknown refuses a parameter of which only the FHIR server may know what it asks.
func unknown(resourceType, name string) error {
	return message.Invalid(message.ErrSearch, "The search parameter %s is not known here: it is none of FHIR R4's for %s, and this site defines none of that name.",
		strconv.Quote(name), cmp.Or(resourceType, "all types"))
}

// isPlainKey reports whether a key of _sort is about what is in a resource itself.
func isPlainKey(x *Searches, resourceType, name string) bool {
	p, ok := x.Parameters.Lookup(resourceType, name)
	return ok && p.Kind != searchparam.Reference && telling[name] == ""
}

// isPlainOrder reports whether all keys of _sort are about what is in a resource itself.
func isPlainOrder(x *Searches, resourceType, value string) bool {
	for key := range strings.SplitSeq(value, ",") {
		if !isPlainKey(x, resourceType, strings.TrimPrefix(key, "-")) {
			return false
		}
	}
	return true
}

// IsPlain reports whether a search is by the elements of its own type alone.
func (x *Searches) IsPlain(i interaction.Interaction) bool {
	return i.Type != smart.AnyType && !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch {
		case isHarmless[p.Name]:
			return false
		case p.Name == "_sort":
			return !isPlainOrder(x, i.Type, p.Value)
		}
		return telling[name] != "" || checkPlain(x, i.Type, name, modifier, p.Value) != nil
	})
}

// isHarmless are the parameters that say how an answer is to be, and tell of no other type.
var isHarmless = map[string]bool{
	"_count": true, "_summary": true, "_elements": true, "_total": true, "_format": true, "_pretty": true,
}

const (
	// maxLinks is how many links a chain may have.
	maxLinks = 4
	// maxTargets is to how many types a chain may go that names none.
	maxTargets = 4
	// maxChained is how many resources may be found in the place of a link.
	maxChained = 100
)

// readChain reads subject:Patient.name, subject.name or _has:Observation:subject:code.
func readChain(x *Searches, resourceType string, p smart.Parameter) (chain, error) {
	if strings.Count(p.Name, ".")+strings.Count(p.Name, "_has:") > maxLinks {
		return chain{}, message.TooCostly("A chained search may have %d links at most under these scopes.", maxLinks)
	}
	if rest, ok := strings.CutPrefix(p.Name, "_has:"); ok {
		return readHas(x, resourceType, rest, p.Value)
	}
	first, rest, _ := strings.Cut(p.Name, ".")
	name, target, typed := strings.Cut(first, ":")
	c := chain{rest: smart.Parameter{Name: rest, Value: p.Value}}
	var ok bool
	c.by, ok = x.Parameters.Lookup(resourceType, name)
	if !ok || c.by.Kind != searchparam.Reference || rest == "" || typed && !interaction.IsType(target) {
		return c, message.Invalid(message.ErrSearch, "The chained search parameter is none of FHIR R4's for the type.")
	}
	if typed {
		c.types = []string{target}
		return c, nil
	}
	c.types = slices.DeleteFunc(targets(c.by), func(t string) bool { return !isAsked(x, t, rest) })
	if len(c.types) == 0 || len(c.types) > maxTargets {
		return c, message.TooCostly("Name the type that the chain goes to under these scopes, as in %s:Type.%s.", name, rest)
	}
	return c, nil
}

func readHas(x *Searches, resourceType, parts, value string) (chain, error) {
	of, parts, _ := strings.Cut(parts, ":")
	by, rest, _ := strings.Cut(parts, ":")
	c := chain{types: []string{of}, rest: smart.Parameter{Name: rest, Value: value}, reverse: true}
	var ok bool
	c.by, ok = x.Parameters.Lookup(of, by)
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
func isAsked(x *Searches, resourceType, rest string) bool {
	if strings.HasPrefix(rest, "_has:") {
		return true
	}
	first, _, _ := strings.Cut(rest, ".")
	name, _, _ := strings.Cut(first, ":")
	_, ok := x.Parameters.Lookup(resourceType, name)
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
