package search

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

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
		var left []message.Entry
		for _, reference := range p.Left {
			if e, ok := found[reference]; ok {
				left = append(left, e)
			}
		}
		if err := m.take(ctx, n, left); err != nil {
			return err
		}
	}
	return nil
}

// find finds resources of a type by their ids, with what comes along.
func (m *merge) find(ctx context.Context, resourceType string, ids []string, found map[string]message.Entry) error {
	parameters := slices.DeleteFunc(slices.Clone(m.s.parameters), func(p smart.Parameter) bool { return !paging.IsForResults(p) })
	parameters = append(parameters, smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")})
	c := searchCall(m.s.c.Method, resourceType, parameters, len(ids))
	for at := (paging.Place{}); !at.Done; {
		got, next, err := m.page(ctx, c, at)
		if err != nil {
			return err
		}
		matches, others := parted(got.Entries)
		for _, e := range matches {
			found[e.Parsed.Type+"/"+e.Parsed.ID] = e
		}
		m.others, at = append(m.others, others...), next
	}
	return nil
}
