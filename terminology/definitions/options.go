package definitions

import (
	"cmp"
	"io"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
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

	// Sources are code systems that are no resources, beside those that the program knows itself. Each counts only where the
	// definitions have no concepts of it. Default: none.
	Sources []codesystem.Source

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

	// MaxPackage bounds the unpacked content of a FHIR package, in bytes; beyond 16 MiB it must also be no more than fifty
	// times as large as the package. Default: 2 GiB.
	MaxPackage int64

	// MaxCachedEntries bounds the cached expansions, in codes: 12 bytes each, and 8 more if they can be shown as a tree.
	// Value sets that requests sent are cached too, up to 12 bytes for each of so many codes. Default: 1,000,000.
	MaxCachedEntries int

	// Now is the clock. Default: [time.Now].
	Now func() time.Time

	// Logger logs each source at debug level, the progress of a large one every few seconds at info level, and a folder
	// without definitions at warn level. Default: none.
	Logger *slog.Logger

	// Terminal shows a progress bar for a large source; see the function [Terminal]. Default: none.
	Terminal io.Writer
}

// SetDefaults sets what is not set to its default.
func (o *Options) SetDefaults() {
	o.MaxImportDepth = cmp.Or(o.MaxImportDepth, 32)
	o.MaxGathered = cmp.Or(o.MaxGathered, 20_000_000)
	o.MaxRegexStates = cmp.Or(o.MaxRegexStates, 1000)
	o.MaxValue = cmp.Or(o.MaxValue, 64<<20)
	o.MaxPackage = cmp.Or(o.MaxPackage, 2<<30)
	o.MaxCachedEntries = cmp.Or(o.MaxCachedEntries, 1_000_000)
	o.Logger = cmp.Or(o.Logger, NoLog)
	if o.Now == nil {
		o.Now = time.Now
	}
}

// NoLog is the default of loggers.
var NoLog = slog.New(slog.DiscardHandler)
