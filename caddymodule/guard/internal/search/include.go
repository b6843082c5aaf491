package search

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// expandInclude returns the parameters that replace an _include. It expands a wildcard to the type's reference parameters with
// covered targets, because few FHIR servers support every spelling of a wildcard.
func (r searchRules) expandInclude(p smart.Parameter, modifier string) ([]smart.Parameter, error) {
	if err := checkInclude(modifier); err != nil {
		return nil, err
	}
	if modifier != "" || !isWildcard(p.Value, r.resourceType) || !interaction.IsType(r.resourceType) {
		return []smart.Parameter{p}, nil
	}
	all := []smart.Parameter{}
	for _, by := range r.handler.Parameters.ParametersOf(r.resourceType) {
		if r.hasCoveredTarget(by) {
			all = append(all, smart.Parameter{Name: p.Name, Value: r.resourceType + ":" + by.Name})
		}
	}
	return all, nil
}

// isWildcard reports whether an include selects all references of a type: *, *:* or Type:*.
func isWildcard(value, resourceType string) bool {
	return value == "*" || value == "*:*" || value == resourceType+":*"
}

// maxIncludeParameters is the maximum number of parameters that replace a wildcard. If more would be needed, the wildcard is
// sent to the FHIR server.
const maxIncludeParameters = 64

// revincludesOf returns a _revinclude for each reference from a covered type to the searched type.
func (r searchRules) revincludesOf(p smart.Parameter) (all []smart.Parameter) {
	for _, of := range interaction.Types() {
		if len(r.handler.Judge.Rights().GrantsFor(of, smart.Search)) == 0 {
			continue
		}
		for _, by := range r.handler.Parameters.ParametersOf(of) {
			to := targetTypes(by)
			if by.Kind == searchparam.Reference && (len(to) == 0 || slices.Contains(to, r.resourceType)) {
				all = append(all, smart.Parameter{Name: p.Name, Value: of + ":" + by.Name})
			}
		}
	}
	if len(all) > maxIncludeParameters || !interaction.IsType(r.resourceType) {
		return []smart.Parameter{{Name: p.Name, Value: "*"}}
	}
	return all
}

// hasCoveredTarget reports whether a scope covers a type that a reference can refer to, or its types are unknown.
func (r searchRules) hasCoveredTarget(by searchparam.Parameter) bool {
	to := targetTypes(by)
	return by.Kind == searchparam.Reference && (len(to) == 0 || slices.ContainsFunc(to, func(t string) bool {
		return len(r.handler.Judge.Rights().GrantsFor(t, smart.Search))+len(r.handler.Judge.Rights().GrantsFor(t, smart.Read)) > 0
	}))
}

// expandRevinclude returns the parameters that replace a _revinclude. If matches are shared between patients, as practitioners
// are, the FHIR server would also fetch resources of other patients, and the response time would reveal their number. In this
// case, the gateway finds the referring resources by searches within the client's scopes.
func (r searchRules) expandRevinclude(p smart.Parameter, modifier string) (forwarded []smart.Parameter, referring []chain, err error) {
	if err := checkInclude(modifier); err != nil {
		return nil, nil, err
	}
	of, rest, _ := strings.Cut(p.Value, ":")
	name, _, _ := strings.Cut(rest, ":")
	by, ok := r.handler.Parameters.Lookup(of, name)
	isShared := slices.ContainsFunc(r.branches, func(b branch) bool { return b.confinedToPatient == "" })
	switch {
	case interaction.IsType(of) && r.handler.Judge.Rights().IsUnrestricted(of, smart.Search):
		return []smart.Parameter{p}, nil, nil
	case modifier != "":
		return nil, nil, message.Forbidden(message.ErrDisclosure, "_revinclude:%s is not allowed with these scopes: it may traverse other patients' records.", modifier)
	case !isShared && isWildcard(p.Value, "*"):
		return r.revincludesOf(p), nil, nil
	case !isShared:
		return []smart.Parameter{p}, nil, nil
	case !ok || by.Kind != searchparam.Reference:
		return nil, nil, message.Forbidden(message.ErrDisclosure, "With these scopes, _revinclude requires a type and a reference, as in Observation:performer.")
	case len(r.handler.Judge.Rights().GrantsFor(of, smart.Search)) > 0:
		return nil, []chain{{parameter: by, types: []string{of}}}, nil
	}
	return nil, nil, nil
}

func checkInclude(modifier string) error {
	if modifier != "" && modifier != "iterate" && modifier != "recurse" {
		return message.InvalidRequest(message.ErrInvalidSearch, "Unknown modifier of an include: use :iterate or :recurse.")
	}
	return nil
}

// includedEntries returns the included entries for the matches of a page, without duplicates.
func (m *merger) includedEntries(ctx context.Context, inclusions inclusionPlan) ([]message.Entry, error) {
	others := m.nonMatches
	switch {
	case !m.disclosure.isJudged:
		return others, nil
	case inclusions.kinds == (includes{}):
		return nil, nil
	}
	for _, c := range inclusions.referringChains {
		more, err := findReferrers(ctx, m.pages, c, m.matches)
		if err != nil {
			return nil, err
		}
		others = append(others, more...)
	}
	if len(others) == 0 {
		return nil, nil
	}
	w := newReachableSet(m.matches)
	candidates, err := inclusionCandidates(ctx, &m.matchFilter.grants, w, others)
	if err == nil && m.matchFilter.grants.judge.MayDeny() {
		candidates, err = dropDeniedVersions(ctx, m.matchFilter.grants.judge, m.matches, candidates)
	}
	return w.addReachable(candidates, inclusions.kinds), err
}

// dropDeniedVersions drops entries that a versioned reference may have included and that policies deny in the current version.
func dropDeniedVersions(ctx context.Context, judge *judge.Judge, matches []message.Entry, candidates []candidate) ([]candidate, error) {
	versioned := map[string]bool{}
	collectVersioned := func(e message.Entry) {
		literals, _ := message.References(e.Resource) // was parsed before, so it never fails
		for _, literal := range literals {
			if match := message.ResourceURL.FindStringSubmatch(literal); match != nil && strings.Contains(match[1], "/_history/") {
				versioned[message.WithoutVersion(match[1])] = true
			}
		}
	}
	for _, e := range matches {
		collectVersioned(e)
	}
	for _, c := range candidates {
		collectVersioned(c.entry)
	}
	allowed := candidates[:0]
	for _, c := range candidates {
		if versioned[c.node.id] {
			err := judge.CheckCurrent(ctx, interaction.Reference{Type: c.entry.ParsedResource.Type, ID: c.entry.ParsedResource.ID})
			if errors.Is(err, message.ErrNotCovered) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		allowed = append(allowed, c)
	}
	return allowed, nil
}

// inclusionCandidates returns the visible entries that are not matches, without duplicates.
func inclusionCandidates(ctx context.Context, grants *grantCache, w reachableSet, entries []message.Entry) ([]candidate, error) {
	var found []candidate
	seen := map[string]bool{}
	for _, e := range entries {
		c := candidate{entry: e, node: newResourceNode(e)}
		if w.ids[c.node.id] || seen[c.node.id] {
			continue
		}
		seen[c.node.id] = true
		var err error
		if c.maySearch, err = grants.judge.IsCovered(ctx, e.ParsedResource, grants.get(e.ParsedResource.Type, smart.Search)); err != nil {
			return nil, err
		}
		if !c.maySearch {
			if c.mayRead, err = grants.judge.IsCovered(ctx, e.ParsedResource, grants.get(e.ParsedResource.Type, smart.Read)); err != nil {
				return nil, err
			}
		}
		if c.maySearch || c.mayRead {
			found = append(found, c)
		}
	}
	return found, nil
}

// findReferrers returns the resources that refer to the matches.
func findReferrers(ctx context.Context, from *pageReader, c chain, matches []message.Entry) ([]message.Entry, error) {
	var own, ids []string
	needsLookups := from.handler.TypeRules.MayNeedLookups(c.types[0])
	for i := range matches {
		res := matches[i].ParsedResource
		if needsLookups && from.handler.Judge.BelongsToBoundPatient(res) {
			own = append(own, res.Type+"/"+res.ID)
		} else {
			ids = append(ids, res.Type+"/"+res.ID)
		}
	}
	found, err := findReferringToPatient(ctx, from, c, own)
	if len(ids) == 0 || err != nil {
		return found, err
	}
	by := smart.Parameter{Name: c.parameter.Name, Value: strings.Join(ids, ",")}
	err = from.handler.eachMatch(ctx, c.types[0], by, func(e *message.Entry) error {
		e.Mode = "include"
		found = append(found, *e)
		return nil
	})
	return found, err
}

// findReferringToPatient returns the resources that refer to the patient's own matches. It does not confine the search to the
// compartment: a Provenance belongs to the patient because its targets do. Their number reveals only the patient's own records.
func findReferringToPatient(ctx context.Context, from *pageReader, c chain, ids []string) (found []message.Entry, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	parameters := []smart.Parameter{{Name: c.parameter.Name, Value: strings.Join(ids, ",")}}
	first := searchByIDs(http.MethodGet, c.types[0], parameters, len(ids))
	for pages, at := 0, (paging.BranchPosition{}); !at.IsDone; pages++ {
		if pages == maxChainPages {
			return nil, message.TooCostly("With these scopes, _revinclude matches too many resources: request fewer matches with _count.")
		}
		var got *message.Bundle
		if got, at, err = from.read(ctx, maxCount, first, at); err != nil {
			return nil, err
		}
		for _, e := range got.Entries {
			if e.ParsedResource.Type == c.types[0] {
				e.Mode = "include"
				found = append(found, e)
			}
		}
	}
	return found, nil
}

// candidate is a visible entry that is included if the client could have requested it directly.
type candidate struct {
	entry     message.Entry
	node      resourceNode
	maySearch bool // a scope permits searching for the resource
	mayRead   bool // a scope permits reading the resource by its id
}

// reachableSet contains the resources that the client could have found itself: the matches, the resources that matches refer
// to, and those that refer to matches. Any other entry was included because of a withheld resource and would reveal its
// references, or because of a match on another page.
type reachableSet struct {
	ids           map[string]bool
	referencedIDs map[string]bool
}

func newReachableSet(matches []message.Entry) reachableSet {
	w := reachableSet{map[string]bool{}, map[string]bool{}}
	for _, e := range matches {
		w.add(newResourceNode(e))
	}
	return w
}

func (w reachableSet) add(n resourceNode) {
	w.ids[n.id] = true
	for _, name := range n.references {
		w.referencedIDs[name] = true
	}
}

// addReachable adds the reachable candidates to the set and returns them.
func (w reachableSet) addReachable(candidates []candidate, by includes) []message.Entry {
	var reachable []message.Entry
	for hasGrown := true; hasGrown; {
		var added []resourceNode
		rest := candidates[:0]
		for _, c := range candidates {
			switch {
			case by.include && w.referencedIDs[c.node.id] || by.revinclude && c.maySearch && c.node.refersToAny(w.ids):
				added = append(added, c.node)
				reachable = append(reachable, c.entry)
			default:
				rest = append(rest, c)
			}
		}
		for _, n := range added {
			w.add(n)
		}
		candidates, hasGrown = rest, by.iterate && len(added) > 0
	}
	return reachable
}

// resourceNode is a resource and its references.
type resourceNode struct {
	id         string // Type/id
	references []string
}

// refersToAny reports whether the resource refers to any of the given ones.
func (n resourceNode) refersToAny(ids map[string]bool) bool {
	return slices.ContainsFunc(n.references, func(name string) bool { return ids[name] })
}

func newResourceNode(e message.Entry) resourceNode {
	return resourceNode{id: e.ParsedResource.Type + "/" + e.ParsedResource.ID, references: ReferencedIDs(e)}
}

// ReferencedIDs returns the resources on this server that an entry refers to, at any depth. A URL of another server with the
// same ending is included, because the target is always judged.
func ReferencedIDs(e message.Entry) []string {
	literals, _ := message.References(e.Resource) // e.Resource has been parsed already, so this cannot fail
	var names []string
	for _, literal := range literals {
		if match := message.ResourceURL.FindStringSubmatch(literal); match != nil {
			names = append(names, message.WithoutVersion(match[1]))
		}
	}
	return names
}

// ReachableEntries returns the entries that matches refer to, directly or through other returned entries. References to matches
// are ignored: an entry that refers to a match may be in the response because of a withheld resource.
func ReachableEntries(matches, entries []message.Entry) []message.Entry {
	var all []candidate
	for _, e := range entries {
		all = append(all, candidate{entry: e, node: newResourceNode(e)})
	}
	return newReachableSet(matches).addReachable(all, includes{include: true, iterate: true})
}
