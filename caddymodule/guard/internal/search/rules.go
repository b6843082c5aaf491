package search

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// searchRules say which parameters of a search go on to the FHIR server. Unless it is open, none may that could tell of
// resources that are not covered: by what is found, how much, or in which order.
//
// R4's parameters of a type compare what is in the resource itself, which the client may see anyway, so they go on.
type searchRules struct {
	x            *Searches
	s            *search
	resourceType string
	trust        trust
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

// apply takes out the parameters that are done here, and refuses those that tell too much.
func (r searchRules) apply(ctx context.Context, parameters []smart.Parameter) error {
	if err := paging.RefusePaging(parameters); err != nil {
		return err
	}
	for _, p := range parameters {
		r.s.includes.read(p.Name)
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
		return nil, true, r.count(p.Value)
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
	if name, _, _ := strings.Cut(p.Name, ":"); len(r.s.branches) > 1 && (name == "_summary" || name == "_elements") {
		return nil, false, nil // what two branches find is known by elements that would be missing
	}
	if r.trust == open {
		return as, true, nil
	}
	return r.confined(ctx, p)
}

func (r searchRules) count(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return message.Invalid(message.ErrSearch, "_count is no number.")
	}
	r.s.count, r.s.onlyTotal = n, r.s.onlyTotal || n == 0
	return nil
}

// checkType refuses _type where it is not for: a search by type has its type in the path.
func (r searchRules) checkType() error {
	if r.s.i.Type != "" && r.s.i.Type != smart.AnyType {
		return message.Invalid(message.ErrSearch, "_type is for searches over several types.")
	}
	return nil
}

// confined is what a parameter becomes in a search that is not open.
func (r searchRules) confined(ctx context.Context, p smart.Parameter) (passed []smart.Parameter, heeded bool, err error) {
	as := []smart.Parameter{p}
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch {
	case name == "_include":
		as, err = r.include(p, modifier)
		return as, true, err
	case name == "_revinclude":
		as, err = r.revinclude(p, modifier)
		return as, true, err
	case name == "_summary", name == "_elements":
		// An answer without all its elements cannot be judged.
		if r.trust == bound || r.s.includes.any() || modifier != "" {
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
	for _, t := range r.types() {
		if err := r.x.checkPlain(t, name, modifier, p.Value); err != nil {
			return nil, false, err
		}
	}
	return as, true, nil
}

// types are those that the search is about, if it is not about all.
func (r searchRules) types() []string {
	if interaction.IsType(r.resourceType) {
		return []string{r.resourceType}
	}
	var types []string
	for _, b := range r.s.branches {
		if !slices.Contains(types, b.resourceType) {
			types = append(types, b.resourceType)
		}
	}
	return types
}

func checkInclude(modifier string) error {
	if modifier != "" && modifier != "iterate" && modifier != "recurse" {
		return message.Invalid(message.ErrSearch, "An include has no such modifier; there are :iterate and :recurse.")
	}
	return nil
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
func (x *Searches) checkPlain(resourceType, name, modifier, value string) error {
	parameter, ok := x.Parameters.Lookup(resourceType, name)
	switch {
	case !ok:
		return message.Invalid(message.ErrSearch, "The search parameter %s is not known here: it is none of FHIR R4's for %s, and this site defines none of that name.",
			strconv.Quote(name), cmp.Or(resourceType, "all types"))
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

// IsPlain reports whether a search is by the elements of its own type alone.
func (x *Searches) IsPlain(i interaction.Interaction) bool {
	return i.Type != smart.AnyType && !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch {
		case isHarmless[p.Name]:
			return false
		case p.Name == "_sort":
			return !x.isPlainOrder(i.Type, p.Value)
		}
		return telling[name] != "" || x.checkPlain(i.Type, name, modifier, p.Value) != nil
	})
}

// isHarmless are the parameters that say how an answer is to be, and tell of no other type.
var isHarmless = map[string]bool{
	"_count": true, "_summary": true, "_elements": true, "_total": true, "_format": true, "_pretty": true,
}
