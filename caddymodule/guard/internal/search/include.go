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

// leadsToCovered reports whether some scope covers resources of a type to which a reference may be.
func (r searchRules) leadsToCovered(by searchparam.Parameter) bool {
	to := targets(by)
	return by.Kind == searchparam.Reference && (len(to) == 0 || slices.ContainsFunc(to, func(t string) bool {
		return len(r.x.Judge.Rights().For(t, smart.Search))+len(r.x.Judge.Rights().For(t, smart.Read)) > 0
	}))
}

// revinclude is what _revinclude becomes. Of matches that are not the patient's alone, such as practitioners, the FHIR
// server would bring along what is every patient's: how much that is would show in the time that it takes. So what
// refers to them is found by searches of the client's own.
func (r searchRules) revinclude(p smart.Parameter, modifier string) (passed []smart.Parameter, referring []chain, err error) {
	if err := checkInclude(modifier); err != nil {
		return nil, nil, err
	}
	of, rest, _ := strings.Cut(p.Value, ":")
	name, _, _ := strings.Cut(rest, ":")
	by, ok := r.x.Parameters.Lookup(of, name)
	isShared := slices.ContainsFunc(r.branches, func(b branch) bool { return b.member == "" })
	switch {
	case interaction.IsType(of) && r.x.Judge.Rights().Whole(of, smart.Search):
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

// included are the other entries that come along with the matches of a page, each once.
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

// withoutOldVersions drops what a reference to a version may have brought along, if policies deny the current version.
func withoutOldVersions(ctx context.Context, judge *judge.Judge, matches []message.Entry, candidates []candidate) ([]candidate, error) {
	versioned := map[string]bool{}
	note := func(e message.Entry) {
		literals, _ := message.References(e.Resource) // read before
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

// candidatesOf are the entries that may be seen, each once, and that are no matches.
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
		if c.searched, err = grants.judge.Covered(ctx, e.Parsed, grants.of(e.Parsed.Type, smart.Search)); err != nil {
			return nil, err
		}
		if !c.searched {
			if c.read, err = grants.judge.Covered(ctx, e.Parsed, grants.of(e.Parsed.Type, smart.Read)); err != nil {
				return nil, err
			}
		}
		if c.searched || c.read {
			found = append(found, c)
		}
	}
	return found, nil
}

// referring are resources that refer to the matches.
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

// referringToOwn are resources that refer to matches of the patient's own, and that no search of the compartment need find:
// a Provenance is the patient's because its targets are. How many there are is about the patient's records only.
func referringToOwn(ctx context.Context, from *pages, c chain, ids []string) (found []message.Entry, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	parameters := []smart.Parameter{{Name: c.by.Name, Value: strings.Join(ids, ",")}}
	first := searchByIDs(http.MethodGet, c.types[0], parameters, len(ids))
	for pages, at := 0, (paging.Place{}); !at.Done; pages++ {
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

// candidate is an entry that may be seen, if the client could have come to it.
type candidate struct {
	entry    message.Entry
	node     node
	searched bool // a scope lets the client search for it
	read     bool // a scope lets the client read it, if it knows the id
}

// web are the resources that the client could have come to by itself: those of the matches, those that one of the web
// names, and those that name one. The rest came over a resource that is withheld, and would tell what that one names,
// or belongs to a match on another page.
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

// reach adds the entries that can be come to.
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

// node is a resource and what it names.
type node struct {
	id    string // Type/id
	names []string
}

// namesAny reports whether the resource names one of those given.
func (n node) namesAny(ids map[string]bool) bool {
	return slices.ContainsFunc(n.names, func(name string) bool { return ids[name] })
}

// nodeOf reads the references of a resource.
func nodeOf(e message.Entry) node {
	return node{id: e.Parsed.Type + "/" + e.Parsed.ID, names: Named(e)}
}

// Named are the resources that an entry's refers to, at any depth. An address on another server is taken for one here if it
// ends alike: what it brings is judged in any case.
func Named(e message.Entry) []string {
	literals, _ := message.References(e.Resource) // what was read before it could not be read
	var names []string
	for _, literal := range literals {
		if match := message.ResourceURL.FindStringSubmatch(literal); match != nil {
			names = append(names, message.WithoutVersion(match[1]))
		}
	}
	return names
}

// Reached returns the entries that matches refer to, directly or through other returned entries. References in the other
// direction do not count: an entry that refers to a match may be in the answer because a withheld resource refers to it.
func Reached(matches, entries []message.Entry) []message.Entry {
	var all []candidate
	for _, e := range entries {
		all = append(all, candidate{entry: e, node: nodeOf(e)})
	}
	return newWeb(matches).reach(all, includes{include: true, iterate: true})
}
