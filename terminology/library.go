package terminology

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

// Library answers the operations of a terminology service from definitions, which never change. Make one with [Load]. It
// is safe for concurrent use.
type Library struct {
	set        *definitions.Set
	expansions *compose.CodeListCache
}

// Definitions returns what the library holds.
func (l *Library) Definitions() *definitions.Set { return l.set }

// CodeLists returns the cache of the codes of value sets, for operations that need them.
func (l *Library) CodeLists() *compose.CodeListCache { return l.expansions }

// With returns a library in which resources are added to those of l and take precedence. It does not change l. It is
// cheap, and meant for the few definitions of one request.
func (l *Library) With(resources ...jsontext.Value) (*Library, error) {
	set, err := l.set.With(resources...)
	if err != nil {
		return nil, err
	}
	return &Library{set: set, expansions: l.expansions}, nil
}

// beside returns a library with the given resources as if they had been loaded after those of l: of several versions the
// latest counts, wherever it is from. It does not change l.
func (l *Library) beside(resources ...jsontext.Value) (*Library, error) {
	set, err := l.set.Combine(resources)
	if err != nil {
		return nil, err
	}
	return &Library{set: set, expansions: compose.NewCodeListCache(l.expansions.Limit())}, nil
}

// Expand answers ValueSet/$expand. It fails with the error of the context or an [*Error], which wraps [ErrUnknown],
// [ErrIncomplete] or [ErrUnsupported] if another server may be able to answer.
func (l *Library) Expand(ctx context.Context, q expansion.Query) (*expansion.Expansion, error) {
	return expansion.New(l.set, l.expansions, q, budget.Of(ctx, l.set.Bounds.Gathered))
}

// Load reads definitions into a library. It fails if a pattern matches nothing, or with an error that names the file if one
// cannot be read completely.
func Load(ctx context.Context, o definitions.Options) (*Library, error) {
	set, err := definitions.Load(ctx, o)
	if err != nil {
		return nil, err
	}
	o.SetDefaults()
	l := &Library{set: set, expansions: compose.NewCodeListCache(o.MaxCachedEntries)}
	weightCheck{l, o.Logger}.check(ctx)
	set.IndexLarge(ctx, o.Logger)
	return l, nil
}
