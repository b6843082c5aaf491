package search

import (
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

// chain is the first link of a parameter that looks at other resources, and what it asks of them.
type chain struct {
	by      searchparam.Parameter // the reference
	types   []string              // that are looked at
	rest    smart.Parameter       // what is asked of them
	reverse bool                  // _has: they refer to what is searched for
}

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
