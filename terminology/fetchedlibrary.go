package terminology

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// keep stores an answer of Source, and adds it to the library.
func (f *Fetched) keep(m outcome.Missing, resource jsontext.Value) error {
	now := time.Now()
	f.answers.count++
	item := &fetched{resource: resource, number: f.answers.count, fetched: now, expires: now.Add(cmp.Or(f.TTL, time.Hour)), reference: m.Kind + "/" + m.ID}
	if h, err := definitions.HeadOf(resource); err == nil {
		item.url, item.reference = h.URL, h.Kind+"/"+h.ID
	}
	if resource == nil {
		item.expires = now.Add(cmp.Or(f.MissingTTL, time.Minute))
	}
	if resource != nil {
		more, err := f.layers.current.beside(resource)
		if err != nil {
			return fmt.Errorf("%v cannot be read: %w", m, err)
		}
		f.layers.current, f.layers.stacked = more, f.layers.stacked+1
	}
	if f.answers.put(m, item, f.most()) || f.layers.stacked > maxStacked {
		f.rebuild()
	}
	if f.answers.due.IsZero() || item.expires.Before(f.answers.due) {
		f.answers.due = item.expires
	}
	return nil
}

// rebuild makes the library again from all that is held, which has been read before without an error.
func (f *Fetched) rebuild() {
	f.layers.current, f.layers.stacked = f.layers.base, 0
	var items []*fetched
	f.answers.each(func(_ outcome.Missing, item *fetched) {
		if item.resource != nil {
			items = append(items, item)
		}
	})
	if len(items) == 0 {
		return
	}
	slices.SortFunc(items, func(a, b *fetched) int { return cmp.Compare(a.number, b.number) })
	var resources []jsontext.Value
	for _, item := range items {
		resources = append(resources, item.resource)
	}
	if l, err := f.layers.base.beside(resources...); err == nil {
		f.layers.current, f.layers.stacked = l, 1
	}
}

// ask asks Source for the latest version of a definition.
func (f *Fetched) ask(ctx context.Context, m outcome.Missing) (jsontext.Value, error) {
	start := time.Now()
	found, err := f.Source.Definitions(ctx, m)
	if err != nil {
		return nil, err
	}
	resource, err := definitions.LatestOf(found, m)
	if err != nil || resource == nil {
		return nil, err
	}
	if limit := f.most(); int64(len(resource)) > limit {
		return nil, &outcome.Error{Status: http.StatusUnprocessableEntity, Code: "too-costly",
			Text: fmt.Sprintf("%v is larger than the %s that may be fetched", m, fhirjson.SizeText(limit))}
	}
	cmp.Or(f.Logger, definitions.NoLog).InfoContext(ctx, "definition fetched", slog.String("definition", m.String()),
		slog.Int("bytes", len(resource)), slog.Duration("took", time.Since(start)))
	return resource, nil
}
