package terminology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// Options says what [Load] loads.
type Options struct {
	// Core loads the code systems and value sets of FHIR R4 (4.0.1) itself, with its v2 tables and v3
	// code systems, which are built in, with the bindings of its elements, for the parameter context. Default:
	// false, they are left out.
	Core bool

	// Definitions are the files and folders to load, after the core and in this order. Each is a path
	// or a pattern of [path/filepath.Glob]. A file ends in .json, and is a resource, a Bundle, or
	// several of these one after the other; in .xml, and is a resource or a Bundle; or in .tgz, and is a
	// FHIR package. A folder is searched, with all within it, for such files.
	//
	// Of two definitions with the same url, the one with the higher version counts where a reference says no
	// version; of two with the same version, or with versions that cannot be compared, the one loaded later.
	Definitions []string

	// MaxImportDepth is how deep value sets may import each other. Default: 32.
	MaxImportDepth int

	// MaxGathered is how much one request may cost, in codes that are gathered or looked at; more is too costly.
	// Whatever takes time counts, in all value sets, codings and validations of the request: the codes of
	// includes and of imported value sets, the values that filters look at, for a regex each of its states for
	// every two bytes, and the texts that are compared or searched. Default: 20,000,000, which takes about
	// a second.
	MaxGathered int

	// MaxRegexStates is how large a regex in a filter may be: how many states the automaton has that looks
	// for it, which is about a state for each character, times the repetitions ({n,m}) around it. A larger
	// one is too costly. Default: 1000.
	MaxRegexStates int

	// MaxValue is how large a value of a definition may be that is held whole while it is read, in bytes of JSON:
	// a string, or a member as compose. Default: 64 MiB.
	MaxValue int64

	// MaxEntry is how large a file in a FHIR package may be, in bytes. Default: 2 GiB.
	MaxEntry int64

	// MaxPackage is how much all that is in a FHIR package may be, in bytes; beyond 16 MiB it may also be no more
	// than fifty times as large as the package. Default: 2 GiB.
	MaxPackage int64

	// MaxCachedEntries bounds the expansions that are kept in memory, in codes; 12 bytes are needed
	// for each, and 8 more where they can be shown as a tree. Default: 1,000,000.
	MaxCachedEntries int

	// Now is the clock. Default: [time.Now].
	Now func() time.Time

	// Logger is told, at debug level, of each source, at info level, how far the loading of a large one is, every
	// few seconds, and, at warning level, of a folder without definitions. Default: none.
	Logger *slog.Logger

	// Terminal is where a bar shows how far the loading of a large source is; [Terminal] makes sure that
	// it is a terminal. Default: none.
	Terminal io.Writer
}

// Load reads definitions into a library. It fails on a pattern that matches nothing, and on a file that cannot be read
// completely, with an error that names the file.
func Load(ctx context.Context, o Options) (*Library, error) {
	o.setDefaults()
	l := newLibrary(o)
	loader := newResourceLoader(l)
	loader.options = &o
	defer loader.codes.concepts.Memory.Release() // of what could not be read whole
	if o.Core {
		if err := loader.core(ctx); err != nil {
			return nil, fmt.Errorf("built-in definitions: %w", err)
		}
	}
	for _, pattern := range o.Definitions {
		files, err := sources(pattern)
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
	l.indexLarge(ctx, o.Logger)
	return l, nil
}

// setDefaults fills in what is not set.
func (o *Options) setDefaults() {
	if o.MaxImportDepth == 0 {
		o.MaxImportDepth = 32
	}
	if o.MaxGathered == 0 {
		o.MaxGathered = 20_000_000
	}
	if o.MaxRegexStates == 0 {
		o.MaxRegexStates = 1000
	}
	o.MaxValue = cmp.Or(o.MaxValue, 64<<20)
	o.MaxEntry = cmp.Or(o.MaxEntry, 2<<30)
	o.MaxPackage = cmp.Or(o.MaxPackage, 2<<30)
	if o.MaxCachedEntries == 0 {
		o.MaxCachedEntries = 1_000_000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// newLibrary returns an empty library.
func newLibrary(o Options) *Library {
	l := emptyLibrary()
	l.loaded = o.Now().UTC().Truncate(time.Second)
	l.bounds = bounds{importDepth: o.MaxImportDepth, gathered: o.MaxGathered, regexStates: o.MaxRegexStates}
	l.expansions = newCodeListCache(o.MaxCachedEntries)
	return l
}

// emptyLibrary returns a library that has nothing in it and remembers nothing.
func emptyLibrary() *Library {
	l := &Library{expansions: newCodeListCache(0)}
	l.systemIDs, l.supplements, l.entire = make(map[string]uint32), make(map[string][]uint32), make(map[string]uint32)
	l.byCanonical, l.latest, l.byID = make(map[string]*valueSet), make(map[string]*valueSet), make(map[string]*valueSet)
	l.bindings, l.fragments, l.mapIndexes = make(map[string]string), make(map[string]*valueSet), make(map[string]int)
	l.listed = listed{code: make([]codesystem.TextRef, 1), display: make([]codesystem.TextRef, 1), system: make([]uint32, 1)}
	l.listed.Reset()
	return l
}

// errEmpty is the error for a file without any resource.
var errEmpty = errors.New("empty: no resource in it")

// resources reads JSON resources, one after the other, up to the end of src.
func (l *resourceLoader) resources(ctx context.Context, src io.Reader, short *fhirjson.Shortage) error {
	r := fhirjson.NewSourceReader(ctx, src, l.options.MaxValue).Counting(short)
	for n := 0; ; n++ {
		if r.AtEnd() {
			if n == 0 {
				return errEmpty
			}
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.resource(r); err != nil {
			return err
		}
	}
}
