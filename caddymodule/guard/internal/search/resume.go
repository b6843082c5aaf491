package search

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// position is the one behind the page: what was read and is not on it is named, since no page is read twice.
func (m *merge) position(ctx context.Context, from paging.Position) (paging.Position, error) {
	to := paging.Position{Shown: from.Shown + len(m.matches), Total: from.Total}
	for n := range m.sources {
		at := m.sources[n].next
		for {
			if err := m.advance(ctx, n); err != nil {
				return to, err
			}
			if m.sources[n].head == nil {
				break
			}
			rest := m.sources[n].take()
			at.Left = append(at.Left, rest.Parsed.Type+"/"+rest.Parsed.ID)
		}
		to.Places = append(to.Places, at)
	}
	return to, nil
}

// resume loads the matches that the page before has read and not shown, by one search for those of each type. They are
// judged as all else; what is not there any more is left out.
func (m *merge) resume(ctx context.Context, at paging.Position) error {
	ids := map[string][]string{}
	for _, p := range at.Places {
		for _, reference := range p.Left {
			resourceType, id, _ := strings.Cut(reference, "/")
			ids[resourceType] = append(ids[resourceType], id)
		}
	}
	found := map[string]message.Entry{}
	for resourceType, of := range ids {
		if err := m.find(ctx, resourceType, of, found); err != nil {
			return err
		}
	}
	for n, p := range at.Places {
		for _, reference := range p.Left {
			if e, ok := found[reference]; ok {
				m.sources[n].matches = append(m.sources[n].matches, e)
			}
		}
	}
	return nil
}

// find finds resources of a type by their ids, with what comes along.
func (m *merge) find(ctx context.Context, resourceType string, ids []string, found map[string]message.Entry) error {
	parameters := slices.DeleteFunc(slices.Clone(m.s.parameters), func(p smart.Parameter) bool { return !paging.IsForResults(p) })
	parameters = append(parameters, smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")},
		smart.Parameter{Name: "_count", Value: strconv.Itoa(len(ids))})
	c := searchCall(m.s.c.Method, resourceType, parameters)
	for at := (paging.Place{}); !at.Done; {
		got, next, err := m.page(ctx, c, at)
		if err != nil {
			return err
		}
		matches, others := parted(got, m.s.judged)
		for _, e := range matches {
			found[e.Parsed.Type+"/"+e.Parsed.ID] = e
		}
		m.others, at = append(m.others, others...), next
	}
	return nil
}
