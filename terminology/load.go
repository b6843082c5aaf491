package terminology

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

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
