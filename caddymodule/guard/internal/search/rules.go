package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
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
	s.dropIgnored()
	s.setJudged(rules.trust != open || len(s.branches) > 1)
	if most := s.mostRequests(); len(s.order) > 0 && len(s.branches) > most {
		return nil, message.TooCostly("The sorted search needs %d requests to the FHIR server for each page, and %d are allowed: name fewer types with _type.", len(s.branches), most)
	}
	return s, nil
}

// apply takes out the parameters that are done here, and refuses those that tell too much.
func (r searchRules) apply(ctx context.Context, parameters []smart.Parameter) error {
	if err := paging.RefusePaging(parameters); err != nil {
		return err
	}
	for _, p := range parameters {
		passed, heeded, err := r.one(ctx, p)
		if errors.Is(err, errUnknown) && message.IsLenient(r.s.c.Header) && isDroppable(p.Name) {
			r.s.ignored = append(r.s.ignored, p.Name)
			continue
		}
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

// isDroppable reports whether a search without a parameter finds no more than what may be seen, in any order. A chain is not
// unknown as a whole, and an order is checked by its keys.
func isDroppable(name string) bool {
	return name != "_sort" && !strings.HasPrefix(name, "_has") && !strings.Contains(name, ".")
}

// dropIgnored removes the ignored parameters from the client's call, so that links to further pages don't repeat them.
func (s *plan) dropIgnored() {
	if len(s.ignored) == 0 {
		return
	}
	s.i.Parameters = slices.DeleteFunc(slices.Clone(s.i.Parameters), func(p smart.Parameter) bool { return slices.Contains(s.ignored, p.Name) })
	if text := smart.EncodeParameters(s.i.Parameters); s.c.Method == http.MethodPost {
		s.c.Query, s.c.Body = "", []byte(text)
	} else {
		s.c.Query = text
	}
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
	case !slices.Contains(modifiers[parameter.Kind], modifier):
		return message.Forbidden(message.ErrOracle, "The modifier :%s of %s is not allowed under these scopes: it may look at other resources.", modifier, name)
	case (modifier == "in" || modifier == "not-in") && !strings.Contains(value, ":"):
		return message.Forbidden(message.ErrOracle, "The modifier :%s needs the URL of a value set under these scopes.", modifier)
	}
	return nil
}

var errUnknown = fmt.Errorf("%w: unknown parameter", message.ErrSearch)

// unknown refuses a parameter of which only the FHIR server may know what it asks.
func unknown(resourceType, name string) error {
	return message.Invalid(errUnknown, "The search parameter %s is not known here: it is none of FHIR R4's for %s, and this site defines none of that name.",
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
