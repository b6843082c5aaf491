package search

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// included are the other entries that come along with the matches of a page, each once.
func (m *merge) included(ctx context.Context) ([]message.Entry, error) {
	others := m.others
	for _, from := range m.sources {
		others = append(others, from.along(m.s.judged)...)
	}
	if !m.s.judged {
		return others, nil
	}
	for _, c := range m.s.referring {
		more, err := m.referring(ctx, c)
		if err != nil {
			return nil, err
		}
		others = append(others, more...)
	}
	if len(others) == 0 {
		return nil, nil
	}
	w := newWeb(m.matches)
	candidates, err := m.s.candidates(ctx, w, others)
	return w.reach(candidates, m.s.includes), err
}

// candidates are the entries that may be seen, each once, and that are no matches.
func (s *search) candidates(ctx context.Context, w web, entries []message.Entry) ([]candidate, error) {
	var found []candidate
	seen := map[string]bool{}
	for _, e := range entries {
		c := candidate{entry: e, node: nodeOf(e)}
		if w.ids[c.node.id] || seen[c.node.id] {
			continue
		}
		seen[c.node.id] = true
		var err error
		if c.searched, err = s.x.Judge.Covered(ctx, e.Parsed, s.grantsFor(e.Parsed.Type, smart.Search)); err != nil {
			return nil, err
		}
		if !c.searched {
			if c.read, err = s.x.Judge.Covered(ctx, e.Parsed, s.grantsFor(e.Parsed.Type, smart.Read)); err != nil {
				return nil, err
			}
		}
		if c.searched || c.read {
			found = append(found, c)
		}
	}
	return found, nil
}

// revinclude is what _revinclude becomes. Of matches that are not the patient's alone, such as practitioners, the FHIR
// server would bring along what is every patient's: how much that is would show in the time that it takes. So what
// refers to them is found by searches of the client's own.
func (r searchRules) revinclude(p smart.Parameter, modifier string) ([]smart.Parameter, error) {
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

// referring are resources that refer to the matches.
func (m *merge) referring(ctx context.Context, c chain) ([]message.Entry, error) {
	var ids []string
	for i := range m.matches {
		ids = append(ids, m.matches[i].Parsed.Type+"/"+m.matches[i].Parsed.ID)
	}
	var found []message.Entry
	if len(ids) == 0 {
		return nil, nil
	}
	by := smart.Parameter{Name: c.by.Name, Value: strings.Join(ids, ",")}
	err := m.s.x.each(ctx, c.types[0], by, func(e message.Entry) error {
		e.Mode = "include"
		found = append(found, e)
		return nil
	})
	return found, err
}

// includes are the ways by which other entries may come along with matches.
type includes struct {
	include    bool // named by a match
	revinclude bool // naming a match
	iterate    bool // and so on from there
}

func (i *includes) read(name string) {
	name, modifier, _ := strings.Cut(name, ":")
	switch name {
	case "_include":
		i.include = true
	case "_revinclude":
		i.revinclude = true
	default:
		return
	}
	i.iterate = i.iterate || modifier != ""
}

// any reports whether entries other than matches may come.
func (i *includes) any() bool { return i.include || i.revinclude }
