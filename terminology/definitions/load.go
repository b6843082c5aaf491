package definitions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Options says what [Load] loads.
type Options struct {
	// Core loads the built-in definitions: the code systems and value sets of FHIR R4 (4.0.1) with its v2 tables and v3
	// code systems, and the bindings of its elements, for the parameter context. Default: false.
	Core bool

	// Definitions are the files and folders to load after the core, in this order, as paths or patterns of
	// [path/filepath.Glob]. A .json file holds one or more resources or Bundles, an .xml file one; a .tgz file is a FHIR
	// package. Folders are searched for such files at any depth.
	//
	// A reference without a version means the highest version; of equal or incomparable versions, the one loaded later. The
	// core's copies of the code systems that HL7 maintains at http://terminology.hl7.org/ come after any that is loaded.
	Definitions []string

	// Synonyms say what words of the parameter filter also stand for. Each is [EnglishSynonyms]; the canonical of a
	// ConceptMap among the definitions (url or url|version), known by its :// or urn:; a file with ConceptMaps, known by
	// its extension .json or .xml; or another file, which [textindex.Synonyms.Read] reads. It is an error if one cannot be
	// read, or a ConceptMap makes no synonyms, or more than 100,000.
	//
	// The displays of a ConceptMap's elements and targets become synonyms, in its language or else English: of those that
	// are equivalent or equal, each also finds the other; of others, the narrower also finds the wider. Where a code system
	// is loaded, its displays count as well. Default: none.
	Synonyms []string

	// Weights are files that say how often codes are used, as [weights.Weights.Read] reads them, or [DefinitionWeights].
	// Default: none.
	Weights []string

	// MaxImportDepth is how deep value sets may import each other. Default: 32.
	MaxImportDepth int

	// MaxGathered bounds the cost of one request, in codes that are gathered or looked at. All value sets, codings and
	// validations of the request count: the codes of includes and imported value sets, the values that filters look at
	// (for a regex, each state for every two bytes), and the texts that are compared or searched. Default: 20,000,000,
	// which takes about a second.
	MaxGathered int

	// MaxRegexStates bounds the states of the automaton for a regex in a filter: about one for each character, times the
	// repetitions ({n,m}) around it. Default: 1000.
	MaxRegexStates int

	// MaxValue bounds a value that is held whole while it is read, such as a string or compose, in bytes of JSON.
	// Default: 64 MiB.
	MaxValue int64

	// MaxEntry bounds a file in a FHIR package, in bytes. Default: 2 GiB.
	MaxEntry int64

	// MaxPackage bounds the unpacked content of a FHIR package, in bytes; beyond 16 MiB it must also be no more than fifty
	// times as large as the package. Default: 2 GiB.
	MaxPackage int64

	// MaxCachedEntries bounds the cached expansions, in codes: 12 bytes each, and 8 more if they can be shown as a tree.
	// Default: 1,000,000.
	MaxCachedEntries int

	// Now is the clock. Default: [time.Now].
	Now func() time.Time

	// Logger logs each source at debug level, the progress of a large one every few seconds at info level, and a folder
	// without definitions at warn level. Default: none.
	Logger *slog.Logger

	// Terminal shows a progress bar for a large source; see the function [Terminal]. Default: none.
	Terminal io.Writer
}

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
	if o.Core {
		if err := loader.core(ctx); err != nil {
			return nil, fmt.Errorf("built-in definitions: %w", err)
		}
		l.Systems.freeze()
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
	if o.Core {
		addBuiltIn(l)
	}
	if err := loader.loadSynonyms(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// SetDefaults sets what is not set to its default.
func (o *Options) SetDefaults() {
	o.MaxImportDepth = cmp.Or(o.MaxImportDepth, 32)
	o.MaxGathered = cmp.Or(o.MaxGathered, 20_000_000)
	o.MaxRegexStates = cmp.Or(o.MaxRegexStates, 1000)
	o.MaxValue = cmp.Or(o.MaxValue, 64<<20)
	o.MaxEntry = cmp.Or(o.MaxEntry, 2<<30)
	o.MaxPackage = cmp.Or(o.MaxPackage, 2<<30)
	o.MaxCachedEntries = cmp.Or(o.MaxCachedEntries, 1_000_000)
	o.Logger = cmp.Or(o.Logger, NoLog)
	if o.Now == nil {
		o.Now = time.Now
	}
}

// NoLog is the default of loggers.
var NoLog = slog.New(slog.DiscardHandler)

// newLibrary returns an empty library with the bounds of the options.
func newLibrary(o Options) *Set {
	l := emptyLibrary()
	l.Loaded = o.Now().UTC().Truncate(time.Second)
	l.Bounds = bounds{ImportDepth: o.MaxImportDepth, Gathered: o.MaxGathered, RegexStates: o.MaxRegexStates}
	return l
}

// emptyLibrary returns an empty library.
func emptyLibrary() *Set {
	l := new(Set)
	l.Systems.systemIDs, l.Systems.Supplements, l.Systems.entire = make(map[string]uint32), make(map[string][]uint32), make(map[string]uint32)
	l.ValueSets.byCanonical, l.ValueSets.latest, l.ValueSets.byID = make(map[string]*ValueSet), make(map[string]*ValueSet), make(map[string]*ValueSet)
	l.ValueSets.bindings, l.ValueSets.fragments, l.Maps.mapIndexes = make(map[string]string), make(map[string]*ValueSet), make(map[string]int)
	l.Rows.listed = listed{Code: make([]codesystem.TextRef, 1), display: make([]codesystem.TextRef, 1), system: make([]uint32, 1)}
	l.Rows.listed.Reset()
	return l
}

var errEmpty = errors.New("empty: no resource in it")

// resources reads JSON resources one after the other, up to the end of src.
func (l *resourceLoader) resources(ctx context.Context, src io.Reader, short *fhirjson.Shortage) error {
	r := fhirjson.NewSourceReader(ctx, src, l.options.MaxValue).Counting(short)
	if r.AtEnd() {
		return errEmpty
	}
	for !r.AtEnd() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.resource(r); err != nil {
			return err
		}
	}
	return nil
}

// IndexLarge builds the indexes of large code systems, so that no request waits for them. Others take milliseconds when
// they are first needed.
func (l *Set) IndexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range l.Systems.CodeSystems {
		if cs.Concepts.Search != nil && cs.Concepts.Len() >= textindex.Large && ctx.Err() == nil {
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
