package search

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// include is what _include becomes: all references of the type, if it names none, by the parameters that lead to types
// which the scopes cover. Few servers know all spellings of all.
func (r searchRules) include(p smart.Parameter, modifier string) ([]smart.Parameter, error) {
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
