package terminology

import (
	"context"
	"log/slog"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

// weightCheck compares weights with a library.
type weightCheck struct {
	library *Library
	log     *slog.Logger
}

// check tells which files are about codes that are not here. It makes the indexes of value sets with weights, so that no
// request waits for them.
func (c weightCheck) check(ctx context.Context) {
	log := c.log
	for url, codes := range c.library.set.Usage.Files.All() {
		holds, ok := c.codesOf(ctx, url)
		if !ok {
			log.WarnContext(ctx, "weights are for no code system or value set that is loaded", slog.String("url", url))
			continue
		}
		missing := 0
		for code := range codes.All() {
			if !holds(code) {
				missing++
			}
		}
		if missing > 0 {
			log.WarnContext(ctx, "codes with weights are not there", slog.String("url", url),
				slog.Int("codes", missing), slog.Int("weights", codes.Len()))
		}
	}
}

// codesOf returns what tells the codes of a code system or value set; false if it is not here.
func (c weightCheck) codesOf(ctx context.Context, url string) (holds func(code string) bool, ok bool) {
	l := c.library.set
	if index := l.Systems.CodeSystem(url, ""); index != definitions.None {
		return func(code string) bool { _, ok := l.Systems.CodeSystems[index].Concepts.Locate([]byte(code)); return ok }, true
	}
	x, err := c.library.Expand(ctx, expansion.Query{ValueSetRef: compose.ValueSetRef{URL: url}, Page: expansion.Page{Filter: "a", Count: new(int)}})
	if err != nil {
		return nil, false
	}
	codes := make(map[string]bool, len(x.List.Entries))
	l.Use(func() {
		for _, e := range x.List.Entries {
			codes[string(l.Code(e))] = true
		}
	})
	return func(code string) bool { return codes[code] }, true
}
