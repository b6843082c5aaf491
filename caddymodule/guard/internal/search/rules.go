package search

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// newPlan plans a search. A chain's own searches are made by find.
func newPlan(ctx context.Context, x *Searches, find finder, c message.Call, i interaction.Interaction) (*plan, error) {
	s := &plan{x: x, find: find, c: c, i: i}
	var err error
	if s.branches, err = branchesOf(x, i); err != nil {
		return nil, err
	}
	s.ruled = x.Judge.MayDeny() || slices.ContainsFunc(s.branches, func(b branch) bool { return b.byRule })
	rules := searchRules{x: x, s: s, resourceType: i.Type}
	if i.Kind == interaction.SystemSearch {
		if types, _ := typesOf(i.Parameters); len(types) == 1 {
			rules.resourceType = types[0]
		}
	}
	if rules.types = []string{rules.resourceType}; !interaction.IsType(rules.resourceType) {
		rules.types = typesIn(s.branches)
	}
	switch { // nothing is covered whole where rules judge each match
	case x.Judge.Rights().Whole(smart.AnyType, smart.Search):
		rules.trust = open
	case len(s.branches) > 0 && !slices.ContainsFunc(s.branches, func(b branch) bool { return !b.whole }):
		rules.trust = whole
	}
	if err := rules.apply(ctx, i.Parameters); err != nil {
		return nil, err
	}
	s.setJudged(rules.trust != open || len(s.branches) > 1)
	return s, nil
}

// apply takes out the parameters that are done here, and refuses those that tell too much.
func (r searchRules) apply(ctx context.Context, parameters []smart.Parameter) error {
	if err := paging.RefusePaging(parameters); err != nil {
		return err
	}
	for _, p := range parameters {
		passed, heeded, err := r.one(ctx, p)
		if err != nil {
			return err
		}
		r.s.parameters = append(r.s.parameters, passed...)
		if heeded {
			r.s.asked = append(r.s.asked, p)
		}
	}
	return nil
}

// one is what a parameter becomes, and whether it counts.
func (r searchRules) one(ctx context.Context, p smart.Parameter) (passed []smart.Parameter, heeded bool, err error) {
	as := []smart.Parameter{p}
	switch p.Name {
	case "_format", "_pretty":
		return nil, false, nil
	case "_count":
		n, err := strconv.Atoi(p.Value)
		if err != nil || n < 0 {
			return nil, false, message.Invalid(message.ErrSearch, "_count is no number.")
		}
		r.s.count, r.s.onlyTotal = n, r.s.onlyTotal || n == 0
		return nil, true, nil
	case "_summary":
		if p.Value == "count" {
			r.s.onlyTotal = true
			return nil, true, nil
		}
	case "_type":
		if r.trust == open && r.resourceType == "" {
			return as, true, nil
		}
		return nil, true, r.checkType()
	case "_total":
		r.s.accurate = p.Value == "accurate"
		if len(r.s.branches) > 1 {
			return nil, true, nil
		}
		return as, true, nil
	case "_sort":
		return as, true, r.sort(p.Value)
	}
	return r.confined(ctx, p)
}

// checkType refuses _type where it is not for: a search by type has its type in the path.
func (r searchRules) checkType() error {
	if r.s.i.Type != "" && r.s.i.Type != smart.AnyType {
		return message.Invalid(message.ErrSearch, "_type is for searches over several types.")
	}
	return nil
}

// confined is what a parameter becomes that says what is found, or how much of it is answered.
func (r searchRules) confined(ctx context.Context, p smart.Parameter) (passed []smart.Parameter, heeded bool, err error) {
	as := []smart.Parameter{p}
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch {
	case len(r.s.branches) > 1 && (name == "_summary" || name == "_elements"):
		return nil, false, nil // what two branches find is known by elements that would be missing
	case r.trust == open:
		r.s.includes.add(name, modifier)
		return as, true, nil
	case name == "_include":
		as, err = r.include(p, modifier)
		return as, true, err
	case name == "_revinclude":
		as, err = r.revinclude(p, modifier)
		return as, true, err
	case name == "_summary", name == "_elements":
		// An answer without all its elements cannot be judged.
		if r.trust == bound || r.mayInclude() || modifier != "" {
			return nil, false, nil
		}
		return as, true, nil
	case name == "_contained" && p.Value == "false":
		return nil, false, nil
	case telling[name] != "":
		return nil, false, message.Forbidden(message.ErrOracle, "%s is not allowed under these scopes: %s.", name, telling[name])
	case name == "_has", strings.Contains(p.Name, "."):
		if !interaction.IsType(r.resourceType) {
			return nil, false, message.Invalid(message.ErrSearch, "A search with a chain or _has is about one type here: name it in the path, or as the only one by _type.")
		}
		as, err = r.chained(ctx, p)
		return as, true, err
	}
	for _, t := range r.types {
		if err := checkPlain(r.x, t, name, modifier, p.Value); err != nil {
			return nil, false, err
		}
	}
	return as, true, nil
}

// sort reads _sort, and refuses an order by anything but the resource's own elements.
func (r searchRules) sort(value string) error {
	if r.trust == open && len(r.s.branches) == 1 {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		name, descending := strings.CutPrefix(name, "-")
		if err := r.checkSort(name); err != nil {
			return err
		}
		if len(r.s.branches) > 1 {
			r.s.order = append(r.s.order, sortKey{name, descending})
		}
	}
	return nil
}

// checkSort refuses to sort by a reference, since the order may be that of the resources to which they are, and, where
// several searches are joined, by what cannot be evaluated here.
func (r searchRules) checkSort(name string) error {
	for _, b := range r.s.branches {
		p, ok := r.x.Parameters.Lookup(b.resourceType, name)
		switch {
		case !ok && telling[name] == "" && !strings.Contains(name, "."):
			return unknown(b.resourceType, name)
		case !isPlainKey(r.x, b.resourceType, name):
			return message.Forbidden(message.ErrOracle, "_sort by %s is not allowed under these scopes: it may look at other resources.", strconv.Quote(name))
		case len(r.s.branches) > 1 && !p.CanSort():
			return message.Forbidden(message.ErrCostly, "_sort by %s is not possible under these scopes, since several searches are joined.", strconv.Quote(name))
		}
	}
	return nil
}
