package definitions

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Load reads definitions. It fails if a pattern matches nothing, or with an error that names the file if one cannot be
// read completely.
func Load(ctx context.Context, o Options) (l *Set, err error) {
	o.SetDefaults()
	l = newLibrary(o)
	loader := newResourceLoader(l)
	loader.options = &o
	defer loader.codes.table.Memory.Release() // of an incomplete code system
	if l.Usage, err = loadWeights(ctx, o.Weights); err != nil {
		return nil, err
	}
	sources, err := loader.builtIn(ctx)
	if err != nil {
		return nil, err
	}
	for _, pattern := range o.Definitions {
		files, err := Sources(pattern)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			o.Logger.WarnContext(ctx, "no definitions in the folder", slog.String("folder", pattern), slog.String("looked_for", strings.Join(extensions, " ")))
		}
		for _, file := range files {
			if err := loader.file(ctx, file); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			o.Logger.DebugContext(ctx, "definitions loaded", slog.String("file", file), slog.String("held", l.Counts().String()))
		}
	}
	if err := addBuiltIn(l, sources); err != nil {
		return nil, err
	}
	if err := loader.loadSynonyms(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// IndexLarge builds the indexes of large code systems, so that no request waits for them. Others take milliseconds when
// they are first needed.
func (d *Set) IndexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range d.Systems.CodeSystems {
		if !cs.builtIn && cs.Concepts.Search != nil && cs.Concepts.Len() >= textindex.Large && ctx.Err() == nil {
			x := cs.Concepts.Search.SearchIndex("")
			built = true
			log.DebugContext(ctx, "search index built", slog.String("system", cs.Canonical()),
				slog.Int("words", x.Words()), slog.Int("bytes", x.Bytes()), slog.Int64("off_heap", offheap.InUse()))
		}
	}
	if built {
		debug.FreeOSMemory() // loading took more than its result
	}
}
