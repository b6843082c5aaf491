package search

import (
	"context"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// included are the other entries that come along with the matches of a page, each once.
func (m *merge) included(ctx context.Context) ([]message.Entry, error) {
	others := m.others
	switch {
	case !m.s.judged:
		return others, nil
	case m.s.includes == (includes{}):
		return nil, nil
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
func (s *plan) candidates(ctx context.Context, w web, entries []message.Entry) ([]candidate, error) {
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
	err := m.s.find(ctx, c.types[0], by, func(e *message.Entry) error {
		e.Mode = "include"
		found = append(found, *e)
		return nil
	})
	return found, err
}
