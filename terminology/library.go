package terminology

import (
	"context"
	"log/slog"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

// Library serves terminology operations based on immutable definitions. Create it with [Load]. It is safe for concurrent use.
type Library struct {
	set        *definitions.Set
	expansions *compose.CodeListCache
}

// Definitions returns the definitions that the library serves.
func (l *Library) Definitions() *definitions.Set { return l.set }

// CodeLists returns the library's cache of expansions.
func (l *Library) CodeLists() *compose.CodeListCache { return l.expansions }

// WithResources returns a library in which resources take precedence over the definitions of l. It does not change l. It is
// cheap and meant for the few definitions of one request.
func (l *Library) WithResources(resources ...jsontext.Value) (*Library, error) {
	set, err := l.set.WithResources(resources...)
	if err != nil {
		return nil, err
	}
	return &Library{set: set, expansions: l.expansions}, nil
}

// combine returns a library with the given resources as if they had been loaded after those of l: the latest version wins,
// regardless of its origin. It does not change l.
func (l *Library) combine(resources ...jsontext.Value) (*Library, error) {
	set, err := l.set.Combine(resources)
	if err != nil {
		return nil, err
	}
	return &Library{set: set, expansions: compose.NewCodeListCache(l.expansions.Limit())}, nil
}

// Expand performs ValueSet/$expand. It returns the error of the context or an [*outcome.Error]. The latter wraps
// [outcome.ErrUnknown], [outcome.ErrIncomplete] or [outcome.ErrUnsupported] if another server may be able to serve the request.
func (l *Library) Expand(ctx context.Context, q expansion.Query) (*expansion.Expansion, error) {
	return expansion.New(l.set, l.expansions, q, budget.FromContext(ctx, l.set.Bounds.VisitedCodes))
}

// Load reads definitions into a library. It returns an error if a pattern matches no file or a file cannot be read completely.
func Load(ctx context.Context, o definitions.Options) (*Library, error) {
	set, err := definitions.Load(ctx, o)
	if err != nil {
		return nil, err
	}
	o.SetDefaults()
	l := &Library{set: set, expansions: compose.NewCodeListCache(o.MaxCachedEntries)}
	l.checkWeights(ctx, o.Logger)
	set.IndexLarge(ctx, o.Logger)
	return l, nil
}

// checkWeights logs weights for unknown codes, and builds the search indexes of value sets with weights in advance.
func (l *Library) checkWeights(ctx context.Context, log *slog.Logger) {
	for url, codes := range l.set.Usage.Files.All() {
		contains, ok := l.membershipTest(ctx, url)
		if !ok {
			log.WarnContext(ctx, "weights match no loaded code system or value set", slog.String("url", url))
			continue
		}
		missing := 0
		for code := range codes.All() {
			if !contains(code) {
				missing++
			}
		}
		if missing > 0 {
			log.WarnContext(ctx, "codes with weights not found", slog.String("url", url),
				slog.Int("codes", missing), slog.Int("weights", len(codes)))
		}
	}
}

// membershipTest returns a function that reports whether a code belongs to the code system or value set with the given URL. ok
// is false if it is not loaded.
func (l *Library) membershipTest(ctx context.Context, url string) (contains func(code string) bool, ok bool) {
	if index := l.set.Systems.CodeSystem(url, ""); index != definitions.None {
		return func(code string) bool {
			_, ok := l.set.Systems.CodeSystems[index].Concepts.Locate([]byte(code))
			return ok
		}, true
	}
	x, err := l.Expand(ctx, expansion.Query{ValueSetRef: compose.ValueSetRef{URL: url}, Page: expansion.Page{Filter: "a", Count: new(int)}})
	if err != nil {
		return nil, false
	}
	codes := make(map[string]bool, len(x.CodeList.Entries))
	l.set.Use(func() {
		for _, e := range x.CodeList.Entries {
			codes[string(l.set.Code(e))] = true
		}
	})
	return func(code string) bool { return codes[code] }, true
}
