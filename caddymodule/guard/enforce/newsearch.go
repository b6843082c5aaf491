package enforce

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// maxTypes is in how many types one search of the system or of a compartment may look, each being a search of its own.
const maxTypes = 16

// newSearch plans a search.
func (x *exchange) newSearch(ctx context.Context, c call, i interaction.Interaction) (*search, error) {
	s := &search{x: x, c: c}
	var err error
	if s.branches, err = x.planned(i); err != nil {
		return nil, err
	}
	s.ruled = x.judgement.MayDeny() || slices.ContainsFunc(s.branches, branch.isByRule)
	bound := s.ruled || len(s.branches) != 1 || len(s.branches[0].grants) == 0 || !s.branches[0].isOpen()
	rules := searchRules{x: x, s: s, resourceType: i.Type, bound: bound}
	if s.parameters, err = rules.apply(ctx, i.Parameters); err != nil {
		return nil, err
	}
	s.judged = bound || s.includes && x.rights.All()&(smart.Search|smart.Read) == 0
	return s, nil
}

// isOpen reports whether the branch finds all resources of its type.
func (b branch) isOpen() bool { return b.patient == "" && len(b.confining) == 0 }

// isByRule reports whether the site's rules must say of what the branch finds whether it may be seen.
func (b branch) isByRule() bool {
	return slices.ContainsFunc(b.grants, func(g access.Grant) bool { return g.ByRule })
}

// planned are the branches of a search.
func (x *exchange) planned(i interaction.Interaction) ([]branch, error) {
	switch {
	case i.Kind == interaction.CompartmentSearch:
		return x.plannedInCompartment(i)
	case i.Kind == interaction.SystemSearch:
		return x.plannedInSystem(i)
	}
	return x.plannedFor(i, []string{i.Type})
}

// plannedFor are the branches for types. A type without a scope is left out among others, and refused alone.
func (x *exchange) plannedFor(i interaction.Interaction, types []string) ([]branch, error) {
	if len(types) > maxTypes {
		return nil, forbidden(ErrCostly, "A search may look in %d types at most under these scopes: name them with _type.", maxTypes)
	}
	var all []branch
	for _, t := range types {
		all = append(all, x.branches(t)...)
	}
	if len(all) == 0 {
		return nil, x.refused(i)
	}
	return all, nil
}

// plannedInSystem are the branches of a search over types. One that covers all is left to the FHIR server.
func (x *exchange) plannedInSystem(i interaction.Interaction) ([]branch, error) {
	if x.rights.All()&smart.Search != 0 {
		return []branch{{grants: x.rights.For(smart.AnyType, smart.Search)}}, nil
	}
	types := typesOf(i.Parameters)
	if len(types) == 0 {
		named, anyType := x.rights.Types(smart.Search)
		if anyType {
			return nil, forbidden(ErrCostly, "A search of all types needs _type under these scopes, with %d types at most.", maxTypes)
		}
		types = named
	}
	return x.plannedFor(i, types)
}

// typesOf are the types that _type names.
func typesOf(parameters []smart.Parameter) []string {
	var types []string
	for _, p := range parameters {
		if p.Name == "_type" {
			for name := range strings.SplitSeq(p.Value, ",") {
				if interaction.IsType(name) {
					types = append(types, name)
				}
			}
		}
	}
	return types
}

// plannedInCompartment are the branches of a compartment search: the FHIR server's where the type is open, or where it
// is the compartment to which the scopes are bound anyway.
func (x *exchange) plannedInCompartment(i interaction.Interaction) ([]branch, error) {
	if i.Type == smart.AnyType && x.rights.All()&smart.Search != 0 || x.rights.Whole(i.Type, smart.Search) {
		return []branch{{resourceType: i.Type, within: i.Compartment, grants: x.rights.For(i.Type, smart.Search)}}, nil
	}
	types := []string{i.Type}
	if i.Type == smart.AnyType {
		var anyType bool
		if types, anyType = x.rights.Types(smart.Search); anyType {
			return nil, forbidden(ErrCostly, "A search of all types in a compartment needs _type under these scopes.")
		}
	}
	all, err := x.plannedFor(i, types)
	if err != nil {
		return nil, err
	}
	for n := range all {
		if i.Compartment.Type != "Patient" || all[n].patient != "" && all[n].patient != i.Compartment.ID {
			return nil, x.refused(i)
		}
		all[n].within = i.Compartment
	}
	return all, nil
}

// isFound reports whether a branch before has found a resource as well.
func (s *search) isFound(res resource.Resource, branch int) bool {
	for _, b := range s.branches[:branch] {
		if b.finds(res) {
			return true
		}
	}
	return false
}

// total answers a search for the number of matches alone. Several branches cannot tell it without being read whole.
func (s *search) total(ctx context.Context) (*answer, error) {
	if s.ruled || len(s.branches) != 1 {
		return nil, forbidden(ErrOracle, "The number of matches is not told under these scopes: no single search finds them.")
	}
	b := s.branches[0]
	parameters := append(s.parameters[:len(s.parameters):len(s.parameters)], b.confining...)
	c := searchCall(s.c.method, b.path(), append(parameters, smart.Parameter{Name: "_summary", Value: "count"}))
	a, err := s.x.ask(ctx, c)
	if err != nil {
		return nil, err
	}
	got, err := s.x.bundleOf(a)
	if err != nil {
		return nil, err
	}
	out := &bundle{kind: "searchset", total: got.total, links: []link{{Relation: "self", URL: s.x.url(s.c.path, s.c.query)}}}
	return newAnswer(http.StatusOK, out.text()), nil
}

// bundleOf reads the answer to a search.
func (x *exchange) bundleOf(a *answer) (*bundle, error) {
	if a.status/100 == 5 || a.status == http.StatusTooManyRequests {
		return nil, failed(a)
	}
	if !a.succeeded() {
		return nil, invalid(errSearch, "The FHIR server refuses the search (%s).", strconv.Itoa(a.status))
	}
	if err := requireJSON(a); err != nil {
		return nil, err
	}
	b, err := parseBundle(a.body)
	if err != nil {
		return nil, withheld(err)
	}
	return b, nil
}
