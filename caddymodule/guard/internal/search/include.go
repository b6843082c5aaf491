package search

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// include is what _include becomes: all references of the type, if it names none, by the parameters that lead to types
// which the scopes cover. Few servers know all spellings of all.
func (r searchRules) include(p smart.Parameter, modifier string) ([]smart.Parameter, error) {
	r.s.includes.add("_include", modifier)
	if err := checkInclude(modifier); err != nil {
		return nil, err
	}
	if modifier != "" || !isWildcard(p.Value, r.resourceType) || !interaction.IsType(r.resourceType) {
		return []smart.Parameter{p}, nil
	}
	all := []smart.Parameter{}
	for _, by := range r.x.Parameters.Of(r.resourceType) {
		if r.leadsToCovered(by) {
			all = append(all, smart.Parameter{Name: p.Name, Value: r.resourceType + ":" + by.Name})
		}
	}
	return all, nil
}

// isWildcard reports whether an include means all references of a type: *, *:* or Type:*.
func isWildcard(value, resourceType string) bool {
	return value == "*" || value == "*:*" || value == resourceType+":*"
}

// maxincludes is how many ways one wildcard may become: where there are more, the FHIR server takes them all.
const maxincludes = 64

// referrers are the ways in which resources of types that the scopes cover may refer to those of the search.
func (r searchRules) referrers(p smart.Parameter) (all []smart.Parameter) {
	for _, of := range interaction.Types() {
		if !r.x.Judge.Rights().Allow(of, smart.Search) {
			continue
		}
		for _, by := range r.x.Parameters.Of(of) {
			to := targets(by)
			if by.Kind == searchparam.Reference && (len(to) == 0 || slices.Contains(to, r.resourceType)) {
				all = append(all, smart.Parameter{Name: p.Name, Value: of + ":" + by.Name})
			}
		}
	}
	if len(all) > maxincludes || !interaction.IsType(r.resourceType) {
		return []smart.Parameter{{Name: p.Name, Value: "*"}}
	}
	return all
}

// leadsToCovered reports whether some scope covers resources of a type to which a reference may be.
func (r searchRules) leadsToCovered(by searchparam.Parameter) bool {
	to := targets(by)
	return by.Kind == searchparam.Reference && (len(to) == 0 || slices.ContainsFunc(to, func(t string) bool {
		return r.x.Judge.Rights().Allow(t, smart.Search) || r.x.Judge.Rights().Allow(t, smart.Read)
	}))
}

// revinclude is what _revinclude becomes. Of matches that are not the patient's alone, such as practitioners, the FHIR
// server would bring along what is every patient's: how much that is would show in the time that it takes. So what
// refers to them is found by searches of the client's own.
func (r searchRules) revinclude(p smart.Parameter, modifier string) ([]smart.Parameter, error) {
	r.s.includes.add("_revinclude", modifier)
	if err := checkInclude(modifier); err != nil {
		return nil, err
	}
	of, rest, _ := strings.Cut(p.Value, ":")
	name, _, _ := strings.Cut(rest, ":")
	by, ok := r.x.Parameters.Lookup(of, name)
	isShared := slices.ContainsFunc(r.s.branches, func(b branch) bool { return b.member == "" })
	switch {
	case interaction.IsType(of) && r.x.Judge.Rights().Whole(of, smart.Search):
		return []smart.Parameter{p}, nil
	case modifier != "":
		return nil, message.Forbidden(message.ErrOracle, "_revinclude:%s is not allowed under these scopes: it may come over records of others.", modifier)
	case !isShared && isWildcard(p.Value, "*"):
		return r.referrers(p), nil
	case !isShared:
		return []smart.Parameter{p}, nil
	case !ok || by.Kind != searchparam.Reference:
		return nil, message.Forbidden(message.ErrOracle, "_revinclude needs a type and a reference under these scopes, as in Observation:performer.")
	case len(r.x.Judge.Rights().For(of, smart.Search)) > 0:
		r.s.referring = append(r.s.referring, chain{by: by, types: []string{of}})
	}
	return nil, nil
}

// mayInclude reports whether entries other than matches may come.
func (r searchRules) mayInclude() bool {
	return slices.ContainsFunc(r.s.i.Parameters, func(p smart.Parameter) bool {
		name, _, _ := strings.Cut(p.Name, ":")
		return name == "_include" || name == "_revinclude"
	})
}

func checkInclude(modifier string) error {
	if modifier != "" && modifier != "iterate" && modifier != "recurse" {
		return message.Invalid(message.ErrSearch, "An include has no such modifier; there are :iterate and :recurse.")
	}
	return nil
}
