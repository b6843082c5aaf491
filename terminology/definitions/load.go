package definitions

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/packed"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
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

var extensions = []string{".json", ".xml", ".tgz"}

// Sources returns the files that a path or pattern stands for, in lexical order: none for a folder without definitions.
func Sources(pattern string) ([]string, error) {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("definitions %s: %w", pattern, err)
	}
	if _, err := os.Stat(pattern); err == nil {
		matches = []string{pattern} // a name that merely looks like a pattern
	}
	if len(matches) == 0 {
		return nil, fmt.Errorf("definitions %s: %w", pattern, fs.ErrNotExist)
	}
	var files []string
	for _, match := range matches {
		found, err := filesIn(match)
		if err != nil {
			return nil, fmt.Errorf("definitions %s: %w", pattern, err)
		}
		files = append(files, found...)
	}
	return files, nil
}

// filesIn returns a file, or the definition files in a folder and its subfolders. It skips names that begin with a dot.
// A folder with a package.json is an unpacked FHIR package: that file and the folders beside its resources are skipped
// too.
func filesIn(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	var files []string
	err = filepath.WalkDir(name, func(file string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && file != name
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || isBeside(file)):
			return fs.SkipDir
		case entry.IsDir() || hidden || entry.Name() == manifest:
			return nil
		}
		if slices.Contains(extensions, filepath.Ext(file)) {
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// isBeside reports whether a folder of a FHIR package holds none of its definitions (FHIR NPM Package Specification,
// Package layout).
func isBeside(folder string) bool {
	if !slices.Contains([]string{"doc", "example", "examples", "openapi", "other", "rdf", "test", "tests", "xml"}, filepath.Base(folder)) {
		return false
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(folder), manifest))
	return err == nil
}

// manifest is the file in a FHIR package that describes it.
const manifest = "package.json"

func (l *resourceLoader) file(ctx context.Context, name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	src := io.Reader(f)
	if info, err := f.Stat(); err == nil && l.options != nil {
		p := newProgress(ctx, f, name, info.Size(), l.options)
		defer p.end()
		src = p
		l.codes.table.Size = info.Size()
	}
	switch filepath.Ext(name) {
	case ".json":
		return l.resources(ctx, src, fhirjson.NewShortage(maxShortInFile))
	case ".xml":
		return l.xmlResource(ctx, src)
	case ".tgz":
		return l.fhirPackage(ctx, src)
	default:
		return errors.New("none of " + strings.Join(extensions, ", "))
	}
}

// maxXML bounds a resource in XML, in bytes: it is read whole, while JSON is streamed.
const maxXML = 128 << 20

func (l *resourceLoader) xmlResource(ctx context.Context, src io.Reader) error {
	document, err := io.ReadAll(io.LimitReader(src, maxXML+1))
	if err != nil {
		return err
	}
	if len(document) > maxXML {
		return fmt.Errorf("larger than %s, which is too much for XML; JSON may be larger", fhirjson.SizeText(maxXML))
	}
	resource, err := negotiation.AppendJSON(nil, document)
	if err != nil {
		return err
	}
	return l.resources(ctx, bytes.NewReader(resource), fhirjson.NewShortage(maxShortInFile))
}

// fhirPackage loads a FHIR package: a gzipped tar file with the resources in its folder package. It skips examples and
// other folders.
func (l *resourceLoader) fhirPackage(ctx context.Context, src io.Reader) error {
	packed := &counted{src: src}
	gunzip, err := gzip.NewReader(packed)
	if err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	unzipped := &unpacked{counted: counted{src: gunzip}, packed: packed, most: l.options.MaxPackage}
	archive, short := tar.NewReader(unzipped), fhirjson.NewShortage(maxShortInFile)
	found := false
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("tar: %w", err)
		}
		if header.Typeflag != tar.TypeReg || !isDefinition(header.Name) {
			continue
		}
		found = true
		if header.Size > l.options.MaxPackage {
			return fmt.Errorf("%s: %w", header.Name, &fhirjson.TooLargeError{What: "the file", Most: l.options.MaxPackage})
		}
		l.codes.table.Size = header.Size
		if err := l.resources(ctx, archive, short); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	// Only the end of the gzip stream tells whether it is whole and unchanged.
	if _, err := io.Copy(io.Discard, unzipped); err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	if !found {
		return errors.New("no resource in folder package: not a FHIR package")
	}
	return nil
}

// isDefinition reports whether a file in a package is one of its resources.
func isDefinition(name string) bool {
	folder, file := path.Split(path.Clean(name))
	return folder == "package/" && path.Ext(file) == ".json" && file != manifest && !strings.HasPrefix(file, ".")
}

// What counts as short, in bytes of JSON: shortPart for elements that take more memory, in concept maps and the
// includes of value sets; shortDefinition for a definition.
const (
	shortPart       = 160
	shortDefinition = 1024
)

const maxShortInFile = 64 << 20

// counted counts the bytes read from a source.
type counted struct {
	src io.Reader
	n   int64
}

// Read implements [io.Reader].
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.src.Read(b)
	c.n += int64(n)
	return n, err
}

// unpacked is the content of a package. It fails if that is too large, or too large for the package: definitions shrink
// to a tenth or a thirtieth; what shrinks to a thousandth was made to fill the memory.
type unpacked struct {
	counted
	packed *counted
	most   int64
}

// How many times larger than a package its content may be, and how large in any case.
const (
	maxRatio = 50
	anyRatio = 16 << 20
)

// Read implements [io.Reader].
func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.counted.Read(b)
	switch {
	case u.n > u.most:
		return 0, &fhirjson.TooLargeError{What: "what the package unpacks to", Most: u.most}
	case u.n > anyRatio && u.n > maxRatio*u.packed.n:
		return 0, fmt.Errorf("the package unpacks to more than %d times its size: no package of definitions does; unpack it into a folder if it is to be read all the same", maxRatio)
	}
	return n, err
}

// coreDefinitions are the CodeSystem, ValueSet and ConceptMap resources of FHIR R4 and the bindings of its elements, as compressed
// NDJSON. core/SOURCE.md says where they are from and how they are made.
//
//go:generate go run ./core/generate -out core/r4.ndjson.zst core/package
//go:embed core/r4.ndjson.zst
var coreDefinitions []byte

// packed reads resources that the program brings along; nothing if there are none.
func (l *resourceLoader) packed(ctx context.Context, data []byte) error {
	if data == nil {
		return nil
	}
	if len(data) < 64<<10 {
		text, err := packed.Unpack(data)
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		return l.resources(ctx, bytes.NewReader(text), fhirjson.NewShortage(maxShortInFile))
	}
	// One goroutine and a small window: everything else starts at the same time.
	src, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	defer src.Close()
	return l.resources(ctx, src, fhirjson.NewShortage(maxShortInFile))
}

// Terminal returns a file for Options.Terminal to draw a bar on, or nil if it is no terminal.
func Terminal(f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return f
}

const (
	logEvery  = 5 * time.Second        // between lines in the log
	drawEvery = 100 * time.Millisecond // between bars
	lookEvery = 1 << 20                // bytes between looks at the clock
)

// progress reports how far one file is loaded, in the log and by a bar on a terminal. A file that loads at once gets
// neither.
type progress struct {
	ctx      context.Context
	src      io.Reader
	file     string
	size     int64
	options  *Options
	read     int64
	looked   int64 // how much had been read at the last look at the clock
	logged   time.Time
	drawn    time.Time
	barDrawn bool
}

func newProgress(ctx context.Context, src io.Reader, file string, size int64, o *Options) *progress {
	now := o.Now()
	return &progress{ctx: ctx, src: src, file: file, size: size, options: o, logged: now, drawn: now}
}

// Read implements [io.Reader], and reports now and then.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if p.read += int64(n); p.read-p.looked >= lookEvery {
		p.looked = p.read
		p.tell(p.options.Now())
	}
	return n, err
}

func (p *progress) tell(now time.Time) {
	if now.Sub(p.logged) >= logEvery {
		p.logged = now
		p.options.Logger.InfoContext(p.ctx, "loading definitions", slog.String("file", p.file),
			slog.Int64("percent", p.percent()), slog.Int64("bytes", p.read), slog.Int64("of", p.size))
	}
	if p.options.Terminal != nil && now.Sub(p.drawn) >= drawEvery {
		p.drawn, p.barDrawn = now, true
		p.draw(p.bar())
	}
}

func (p *progress) percent() int64 { return min(100, 100*p.read/max(1, p.size)) }

// bar returns a line that replaces the last.
func (p *progress) bar() string {
	const width = 40
	full := int(p.percent()) * width / 100
	return fmt.Sprintf("\r[%s%s] %3d %% %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), p.percent(), p.file)
}

// end removes the bar.
func (p *progress) end() {
	if p.barDrawn {
		p.draw("\r\x1b[K")
	}
}

// draw writes to the terminal. It ignores errors, which are no reason to stop loading.
func (p *progress) draw(s string) {
	_, _ = io.WriteString(p.options.Terminal, s)
}
