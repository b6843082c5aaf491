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

// include returns the parameters that replace an _include. A wildcard becomes a list of the type's reference parameters
// that lead to covered types, because few FHIR servers support every spelling of a wildcard.
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

// isWildcard reports whether an include selects all references of a type: *, *:* or Type:*.
func isWildcard(value, resourceType string) bool {
	return value == "*" || value == "*:*" || value == resourceType+":*"
}

// maxincludes is the maximum number of parameters that replace a wildcard. Beyond that, the wildcard is sent to the FHIR
// server.
const maxincludes = 64

// referrers returns a _revinclude for each reference from a covered type to the searched type.
func (r searchRules) referrers(p smart.Parameter) (all []smart.Parameter) {
	for _, of := range interaction.Types() {
		if len(r.x.Judge.Rights().For(of, smart.Search)) == 0 {
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

// leadsToCovered reports whether a scope covers resources of a type that the reference can point to.
func (r searchRules) leadsToCovered(by searchparam.Parameter) bool {
	to := targets(by)
	return by.Kind == searchparam.Reference && (len(to) == 0 || slices.ContainsFunc(to, func(t string) bool {
		return len(r.x.Judge.Rights().For(t, smart.Search))+len(r.x.Judge.Rights().For(t, smart.Read)) > 0
	}))
}

// revinclude returns the parameters that replace a _revinclude. For matches that are shared between patients, such as
// practitioners, the FHIR server would also fetch resources of other patients, and the response time would reveal their
// number. The gateway finds the referring resources by searches within the client's scopes instead.
func (r searchRules) revinclude(p smart.Parameter, modifier string) (passed []smart.Parameter, referring []chain, err error) {
	if err := checkInclude(modifier); err != nil {
		return nil, nil, err
	}
	of, rest, _ := strings.Cut(p.Value, ":")
	name, _, _ := strings.Cut(rest, ":")
	by, ok := r.x.Parameters.Lookup(of, name)
	isShared := slices.ContainsFunc(r.branches, func(b branch) bool { return b.member == "" })
	switch {
	case interaction.IsType(of) && r.x.Judge.Rights().IsUnrestricted(of, smart.Search):
		return []smart.Parameter{p}, nil, nil
	case modifier != "":
		return nil, nil, message.Forbidden(message.ErrOracle, "_revinclude:%s is not allowed under these scopes: it may come over records of others.", modifier)
	case !isShared && isWildcard(p.Value, "*"):
		return r.referrers(p), nil, nil
	case !isShared:
		return []smart.Parameter{p}, nil, nil
	case !ok || by.Kind != searchparam.Reference:
		return nil, nil, message.Forbidden(message.ErrOracle, "_revinclude needs a type and a reference under these scopes, as in Observation:performer.")
	case len(r.x.Judge.Rights().For(of, smart.Search)) > 0:
		return nil, []chain{{by: by, types: []string{of}}}, nil
	}
	return nil, nil, nil
}

func checkInclude(modifier string) error {
	if modifier != "" && modifier != "iterate" && modifier != "recurse" {
		return message.Invalid(message.ErrSearch, "An include has no such modifier; there are :iterate and :recurse.")
	}
	return nil
}

// included returns the included entries for the matches of a page, without duplicates.
func (m *merge) included(ctx context.Context, along along) ([]message.Entry, error) {
	others := m.others
	switch {
	case !m.disclosure.judged:
		return others, nil
	case along.includes == (includes{}):
		return nil, nil
	}
	for _, c := range along.referring {
		more, err := referring(ctx, m.pages, c, m.matches)
		if err != nil {
			return nil, err
		}
		others = append(others, more...)
	}
	if len(others) == 0 {
		return nil, nil
	}
	w := newWeb(m.matches)
	candidates, err := candidatesOf(ctx, &m.filter.grants, w, others)
	if err == nil && m.filter.grants.judge.MayDeny() {
		candidates, err = withoutOldVersions(ctx, m.filter.grants.judge, m.matches, candidates)
	}
	return w.reach(candidates, along.includes), err
}

// withoutOldVersions drops entries that a versioned reference may have included, if policies deny the current version.
func withoutOldVersions(ctx context.Context, judge *judge.Judge, matches []message.Entry, candidates []candidate) ([]candidate, error) {
	versioned := map[string]bool{}
	note := func(e message.Entry) {
		literals, _ := message.References(e.Resource) // parsed before, so never fails
		for _, literal := range literals {
			if match := message.ResourceURL.FindStringSubmatch(literal); match != nil && strings.Contains(match[1], "/_history/") {
				versioned[message.WithoutVersion(match[1])] = true
			}
		}
	}
	for _, e := range matches {
		note(e)
	}
	for _, c := range candidates {
		note(c.entry)
	}
	kept := candidates[:0]
	for _, c := range candidates {
		if versioned[c.node.id] {
			err := judge.CheckCurrent(ctx, interaction.Reference{Type: c.entry.Parsed.Type, ID: c.entry.Parsed.ID})
			if errors.Is(err, message.ErrOutside) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		kept = append(kept, c)
	}
	return kept, nil
}

// candidatesOf returns the visible entries that are not matches, without duplicates.
func candidatesOf(ctx context.Context, grants *grants, w web, entries []message.Entry) ([]candidate, error) {
	var found []candidate
	seen := map[string]bool{}
	for _, e := range entries {
		c := candidate{entry: e, node: nodeOf(e)}
		if w.ids[c.node.id] || seen[c.node.id] {
			continue
		}
		seen[c.node.id] = true
		var err error
		if c.searched, err = grants.judge.IsCovered(ctx, e.Parsed, grants.of(e.Parsed.Type, smart.Search)); err != nil {
			return nil, err
		}
		if !c.searched {
			if c.read, err = grants.judge.IsCovered(ctx, e.Parsed, grants.of(e.Parsed.Type, smart.Read)); err != nil {
				return nil, err
			}
		}
		if c.searched || c.read {
			found = append(found, c)
		}
	}
	return found, nil
}

// referring returns the resources that refer to the matches.
func referring(ctx context.Context, from *pages, c chain, matches []message.Entry) ([]message.Entry, error) {
	var own, ids []string
	depends := from.x.Shared.Depends(c.types[0])
	for i := range matches {
		res := matches[i].Parsed
		if depends && from.x.Judge.IsOwn(res) {
			own = append(own, res.Type+"/"+res.ID)
		} else {
			ids = append(ids, res.Type+"/"+res.ID)
		}
	}
	found, err := referringToOwn(ctx, from, c, own)
	if len(ids) == 0 || err != nil {
		return found, err
	}
	by := smart.Parameter{Name: c.by.Name, Value: strings.Join(ids, ",")}
	err = from.x.each(ctx, c.types[0], by, func(e *message.Entry) error {
		e.Mode = "include"
		found = append(found, *e)
		return nil
	})
	return found, err
}

// referringToOwn returns the resources that refer to the patient's own matches and that no search in the compartment need
// find: a Provenance belongs to the patient because its targets do. Their number reveals only the patient's own records.
func referringToOwn(ctx context.Context, from *pages, c chain, ids []string) (found []message.Entry, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	parameters := []smart.Parameter{{Name: c.by.Name, Value: strings.Join(ids, ",")}}
	first := searchByIDs(http.MethodGet, c.types[0], parameters, len(ids))
	for pages, at := 0, (paging.BranchPosition{}); !at.Done; pages++ {
		if pages == maxLookUps {
			return nil, message.TooCostly("_revinclude finds too much under these scopes: ask for fewer matches with _count.")
		}
		var got *message.Bundle
		if got, at, err = from.read(ctx, maxCount, first, at); err != nil {
			return nil, err
		}
		for _, e := range got.Entries {
			if e.Parsed.Type == c.types[0] {
				e.Mode = "include"
				found = append(found, e)
			}
		}
	}
	return found, nil
}

// candidate is a visible entry that may be included if the client could have reached it.
type candidate struct {
	entry    message.Entry
	node     node
	searched bool // a scope permits searching for the resource
	read     bool // a scope permits reading the resource by its id
}

// web contains the resources that the client could have reached by itself: the matches, the resources that the web refers
// to, and the resources that refer to the web. Any other entry was included because of a withheld resource, and
// would reveal its references, or because of a match on another page.
type web struct {
	ids   map[string]bool
	named map[string]bool
}

func newWeb(matches []message.Entry) web {
	w := web{map[string]bool{}, map[string]bool{}}
	for _, e := range matches {
		w.add(nodeOf(e))
	}
	return w
}

func (w web) add(n node) {
	w.ids[n.id] = true
	for _, name := range n.names {
		w.named[name] = true
	}
}

// reach adds the reachable candidates to the web, and returns them.
func (w web) reach(candidates []candidate, by includes) []message.Entry {
	var kept []message.Entry
	for grown := true; grown; {
		var added []node
		rest := candidates[:0]
		for _, c := range candidates {
			switch {
			case by.include && w.named[c.node.id] || by.revinclude && c.searched && c.node.namesAny(w.ids):
				added = append(added, c.node)
				kept = append(kept, c.entry)
			default:
				rest = append(rest, c)
			}
		}
		for _, n := range added {
			w.add(n)
		}
		candidates, grown = rest, by.iterate && len(added) > 0
	}
	return kept
}

// node is a resource and its references.
type node struct {
	id    string // Type/id
	names []string
}

// namesAny reports whether the resource refers to any of the given ones.
func (n node) namesAny(ids map[string]bool) bool {
	return slices.ContainsFunc(n.names, func(name string) bool { return ids[name] })
}

func nodeOf(e message.Entry) node {
	return node{id: e.Parsed.Type + "/" + e.Parsed.ID, names: ReferencedIDs(e)}
}

// ReferencedIDs returns the resources on this server that an entry refers to, at any depth. A URL of another server with the same
// ending also counts, because the target is judged in any case.
func ReferencedIDs(e message.Entry) []string {
	literals, _ := message.References(e.Resource) // parsed before, so never fails
	var names []string
	for _, literal := range literals {
		if match := message.ResourceURL.FindStringSubmatch(literal); match != nil {
			names = append(names, message.WithoutVersion(match[1]))
		}
	}
	return names
}

// ReachableEntries returns the entries that matches refer to, directly or through other returned entries. References in the other
// direction do not count: an entry that refers to a match may be in the response because of a withheld resource.
func ReachableEntries(matches, entries []message.Entry) []message.Entry {
	var all []candidate
	for _, e := range entries {
		all = append(all, candidate{entry: e, node: nodeOf(e)})
	}
	return newWeb(matches).reach(all, includes{include: true, iterate: true})
}
