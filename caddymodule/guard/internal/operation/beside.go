package operation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// maxBeside is how many resources may be fetched for a page beside its own.
const maxBeside = 100

// finishBeside is finish for a page that was asked for by its length, with what is everybody's that its entries name.
// The FHIR server may have that on any page, where a hidden resource may be why. So it comes with what names it, once:
// the link says which ones pages have had, unless these are too many.
func (j *judgedCall) finishBeside(ctx context.Context, out *message.Bundle, rest *paging.Place, had []string) (*message.Answer, error) {
	if j.op.Name == "$everything" {
		var err error
		if had, err = j.beside(ctx, out, had); err != nil {
			return nil, err
		}
	}
	if rest != nil {
		rest.Left = had
	}
	a, err := j.finish(ctx, out, rest)
	if errors.Is(err, paging.ErrLongLink) {
		rest.Left = nil
		return j.finish(ctx, out, rest)
	}
	return a, err
}

// beside adds what is everybody's that entries name and no page has had, by one search for each type. It returns what
// pages have had now.
func (j *judgedCall) beside(ctx context.Context, out *message.Bundle, had []string) ([]string, error) {
	for _, e := range out.Entries {
		if name := e.Parsed.Type + "/" + e.Parsed.ID; j.isBeside(e.Parsed.Type) && !slices.Contains(had, name) {
			had = append(had, name)
		}
	}
	ids := map[string][]string{}
	for _, e := range out.Entries {
		for _, name := range search.Named(e) {
			resourceType, id, _ := strings.Cut(name, "/")
			if j.isBeside(resourceType) && !slices.Contains(had, name) && len(ids[resourceType]) < maxBeside {
				had, ids[resourceType] = append(had, name), append(ids[resourceType], id)
			}
		}
	}
	for _, resourceType := range slices.Sorted(maps.Keys(ids)) {
		if err := j.find(ctx, out, resourceType, ids[resourceType]); err != nil {
			return nil, err
		}
	}
	return had, nil
}

// isBeside reports whether resources of a type are everybody's, and the client asks for them.
func (j *judgedCall) isBeside(resourceType string) bool {
	wanted := j.x.Shared.IsEveryones(resourceType) && len(j.x.answerGrants(j.op, resourceType)) > 0
	for _, p := range j.parameters {
		wanted = wanted && p.Name != "_since" && (p.Name != "_type" || slices.Contains(strings.Split(p.Value, ","), resourceType))
	}
	return wanted
}

// find adds resources of a type by their ids. Where the FHIR server knows no such search, there are none.
func (j *judgedCall) find(ctx context.Context, out *message.Bundle, resourceType string, ids []string) error {
	a, err := j.x.Server.Ask(ctx, message.Get(resourceType, smart.EncodeParameters([]smart.Parameter{
		{Name: "_id", Value: strings.Join(ids, ",")}, {Name: "_count", Value: strconv.Itoa(len(ids))},
	})))
	if err != nil || a.Status/100 == 4 {
		return err
	}
	got, err := j.x.At.BundleOf(a, false, message.Call{}.Said)
	if err != nil {
		return err
	}
	judged, err := j.judged(ctx, got)
	if err != nil {
		return err
	}
	entries := append(judged.matches, judged.others...) // matches where a site has made a type of the compartment everybody's
	for _, e := range entries {
		if e.Parsed.Type == resourceType && slices.Contains(ids, e.Parsed.ID) {
			e.Search = search.IncludeMode
			out.Entries = append(out.Entries, e)
		}
	}
	j.x.At.LocalizeEntries(out.Entries)
	return nil
}
