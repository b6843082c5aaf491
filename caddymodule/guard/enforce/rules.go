package enforce

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// searchRules say which parameters of a search go on to the FHIR server. Under scopes that are bound, none may that
// could tell of resources that are not covered: by what is found, how much, or in which order.
type searchRules struct {
	x            *exchange
	s            *search
	resourceType string
	bound        bool
}

// apply takes out the parameters that are done here, and refuses those that tell too much.
func (r searchRules) apply(ctx context.Context, parameters []smart.Parameter) ([]smart.Parameter, error) {
	var passed []smart.Parameter
	for _, p := range parameters {
		more, err := r.one(ctx, p)
		if err != nil {
			return nil, err
		}
		passed = append(passed, more...)
	}
	return passed, nil
}

// one is what a parameter becomes.
func (r searchRules) one(_ context.Context, p smart.Parameter) ([]smart.Parameter, error) {
	as := []smart.Parameter{p}
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch name {
	case "_format", "_pretty":
		return nil, nil
	case "_type":
		if r.s.branches[0].path() == "" {
			return as, nil
		}
		return nil, nil
	case "_count":
		n, err := strconv.Atoi(p.Value)
		if err != nil || n < 0 {
			return nil, invalid(errSearch, "_count is no number.")
		}
		r.s.count, r.s.onlyTotal = n, r.s.onlyTotal || n == 0
		return nil, nil
	case "_include", "_revinclude":
		r.s.includes = true
		return as, nil
	case "_summary":
		if p.Value == "count" {
			r.s.onlyTotal = true
			return nil, nil
		}
	}
	if !r.bound {
		return as, nil
	}
	switch name {
	case "_summary", "_elements":
		return nil, nil
	case "_total", "_text", "_content":
		return as, nil
	case "_sort":
		return as, r.checkSort(p.Value)
	}
	if strings.Contains(p.Name, ".") || strings.HasPrefix(name, "_has") {
		return nil, forbidden(ErrOracle, "Chained searches are not allowed under these scopes.")
	}
	parameter, ok := searchparam.Lookup(r.resourceType, name)
	if !ok {
		return nil, forbidden(ErrOracle, "The search parameter %s is not allowed under these scopes.", strconv.Quote(name))
	}
	if parameter.Kind == searchparam.Reference && slices.Contains([]string{"above", "below"}, modifier) {
		return nil, forbidden(ErrOracle, "The modifier :%s of a reference is not allowed under these scopes.", modifier)
	}
	return as, nil
}

// checkSort refuses an order by anything but the resource's own elements.
func (r searchRules) checkSort(value string) error {
	for key := range strings.SplitSeq(value, ",") {
		key = strings.TrimPrefix(key, "-")
		if p, ok := searchparam.Lookup(r.resourceType, key); !ok || p.Kind == searchparam.Reference {
			return forbidden(ErrOracle, "_sort by %s is not allowed under these scopes.", strconv.Quote(key))
		}
	}
	return nil
}
