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
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Load reads all definitions. It returns an error if a pattern matches no file or a file cannot be read completely.
func Load(ctx context.Context, o Options) (l *Set, err error) {
	o.SetDefaults()
	l = newSet(o)
	loader := newResourceLoader(l)
	loader.options = &o
	defer loader.codeSystem.table.Memory.Release() // releases the memory of a code system that was only partly read
	if l.Usage, err = loadWeights(ctx, o.Weights); err != nil {
		return nil, err
	}
	sources, err := loader.loadBuiltIn(ctx)
	if err != nil {
		return nil, err
	}
	for _, pattern := range o.Definitions {
		files, err := FindFiles(pattern)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			o.Logger.WarnContext(ctx, "folder contains no definitions", slog.String("folder", pattern), slog.String("looked_for", strings.Join(fileExtensions(), " ")))
		}
		for _, file := range files {
			loader.readFolderManifest(file)
			err := loader.loadFile(ctx, file)
			if errors.Is(err, errNoRelease) && file != pattern {
				o.Logger.WarnContext(ctx, "archive skipped: it contains no release in a known format", slog.String("file", file))
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			o.Logger.DebugContext(ctx, "definitions loaded", slog.String("file", file), slog.String("held", l.Counts().String()))
		}
	}
	loader.reportMissingPackages(ctx)
	if err := addBuiltIn(l, sources); err != nil {
		return nil, err
	}
	if err := loader.loadSynonyms(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// IndexLarge builds the search indexes of large code systems in advance, so that requests do not wait for them. Indexes of
// small code systems take milliseconds to build and are built on demand.
func (d *Set) IndexLarge(ctx context.Context, log *slog.Logger) {
	built := false
	for _, cs := range d.Systems.CodeSystems {
		if !cs.isBuiltIn && cs.Concepts.Searchable != nil && cs.Concepts.Len() >= textindex.LargeCorpusSize && ctx.Err() == nil {
			x := cs.Concepts.Searchable.SearchIndex("")
			built = true
			log.DebugContext(ctx, "search index built", slog.String("system", cs.Canonical()),
				slog.Int("words", x.WordCount()), slog.Int("bytes", x.Bytes()), slog.Int64("off_heap", offheap.BytesInUse()))
		}
	}
	if built {
		debug.FreeOSMemory() // loading temporarily needs more memory than the Set
	}
}

// Options configures [Load].
type Options struct {
	// Core enables the built-in definitions: the code systems and value sets of FHIR R4 (4.0.1), including v2 tables and v3
	// code systems, and the value set bindings of its elements, for the context parameter. Default: false.
	Core bool

	// Definitions are the files and folders to load after the built-in definitions, in order, as paths or [path/filepath.Glob]
	// patterns. A .json file contains one or more resources or Bundles, an .xml file a single resource, a .tgz file a FHIR
	// package, a .zip file a release in a registered [ReleaseFormat]. Folders are searched recursively. A folder with the
	// unpacked files of a release is one release: list several versions one by one.
	//
	// A reference without a version resolves to the highest version. Among equal or incomparable versions, the last one loaded
	// wins. The built-in copies of code systems from http://terminology.hl7.org/ rank below any loaded version. Default: none.
	Definitions []string

	// Sources are additional code systems that are not resources. A source is used only if no definition contains concepts of
	// its code system. Default: none.
	Sources []codesystem.Source

	// Synonyms are lists of synonyms for the filter parameter. An entry is [EnglishSynonyms], the canonical of a loaded
	// ConceptMap (url or url|version, recognized by :// or urn:), a ConceptMap file (.json or .xml), or another file in the
	// format of [textindex.Synonyms.Read]. It is an error if a list cannot be read, or if a ConceptMap yields no synonyms or
	// more than 100,000.
	//
	// The synonyms of a ConceptMap are the displays of its elements and targets, in its language (default: English), and the
	// displays of the same codes in loaded code systems. Equivalent or equal codes find each other. Otherwise, the narrower
	// text also finds the wider concept. Default: none.
	Synonyms []string

	// Weights are files with usage frequencies of codes (see [weights.Weights.Read]), or [DefinitionWeights]. Default: none.
	Weights []string

	// MaxImportDepth is the maximum nesting of value set imports. Default: 32.
	MaxImportDepth int

	// MaxVisitedCodes is the maximum cost of one request, in codes visited across all its value sets, codings and validations:
	// codes of includes and imports, values examined by filters (for a regex, each state per two bytes), and texts that are
	// compared or searched. Default: 20,000,000, which takes about a second.
	MaxVisitedCodes int

	// MaxRegexStates is the maximum number of automaton states of a regex in a filter: about one per character, multiplied by
	// surrounding repetitions ({n,m}). Default: 1000.
	MaxRegexStates int

	// MaxValue is the maximum size of a buffered JSON value, such as a string or compose, in bytes. Default: 64 MiB.
	MaxValue int64

	// MaxPackage is the maximum unpacked size of a FHIR package, or of each file of a release, in bytes. Above 16 MiB, the
	// unpacked content may also be at most 50 times the size of the package. Default: 2 GiB.
	MaxPackage int64

	// MaxCachedEntries is the capacity of the expansion cache in codes. A code uses 12 bytes, plus 8 in an expansion that can
	// be a tree. Value sets from requests are cached separately in up to 12 bytes times MaxCachedEntries. Default: 1,000,000.
	MaxCachedEntries int

	// Now returns the current time. Default: [time.Now].
	Now func() time.Time

	// Logger receives a debug record for each source, the progress of large sources every five seconds at info level, and a
	// warning for each folder without definitions and each package with missing dependencies. Default: discarded.
	Logger *slog.Logger

	// Terminal is where progress bars for large sources are drawn; see the function [Terminal]. Default: none.
	Terminal io.Writer
}

// SetDefaults replaces zero values with their defaults.
func (o *Options) SetDefaults() {
	o.MaxImportDepth = cmp.Or(o.MaxImportDepth, 32)
	o.MaxVisitedCodes = cmp.Or(o.MaxVisitedCodes, 20_000_000)
	o.MaxRegexStates = cmp.Or(o.MaxRegexStates, 1000)
	o.MaxValue = cmp.Or(o.MaxValue, 64<<20)
	o.MaxPackage = cmp.Or(o.MaxPackage, 2<<30)
	o.MaxCachedEntries = cmp.Or(o.MaxCachedEntries, 1_000_000)
	o.Logger = cmp.Or(o.Logger, DiscardLogger)
	if o.Now == nil {
		o.Now = time.Now
	}
}

// DiscardLogger discards all records. It is the default logger.
var DiscardLogger = slog.New(slog.DiscardHandler)

// fileExtensions returns the extensions of definition files and of archives with releases.
func fileExtensions() []string {
	if len(releaseFormats) > 0 {
		return []string{".json", ".xml", ".tgz", ".zip"}
	}
	return []string{".json", ".xml", ".tgz"}
}

// FindFiles returns the files that a path or pattern matches, in lexical order. A folder may contain none. A folder that contains
// a release in a registered [ReleaseFormat] is listed itself, before its definition files.
func FindFiles(pattern string) ([]string, error) {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("loading definitions %s: %w", pattern, err)
	}
	if _, err := os.Stat(pattern); err == nil {
		matches = []string{pattern} // the file name itself contains pattern characters
	}
	if len(matches) == 0 {
		return nil, fmt.Errorf("loading definitions %s: %w", pattern, fs.ErrNotExist)
	}
	var files []string
	for _, match := range matches {
		found, err := listFiles(match)
		if err != nil {
			return nil, fmt.Errorf("loading definitions %s: %w", pattern, err)
		}
		files = append(files, found...)
	}
	return files, nil
}

// listFiles returns the file itself or the definition files in a folder and its subfolders. It skips hidden files. In an
// unpacked FHIR package (a folder with package.json) it also skips package.json and folders without definitions.
func listFiles(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	var files []string
	isRelease := false
	err = walkFolder(name, func(relative string, entry fs.DirEntry) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && relative != "."
		file := filepath.Join(name, filepath.FromSlash(relative))
		switch {
		case entry.IsDir() && (hidden || isAuxiliaryFolder(file)):
			return fs.SkipDir
		case entry.IsDir() || hidden || entry.Name() == manifestName:
			return nil
		}
		isRelease = isRelease || isReleaseMarker(relative)
		if slices.Contains(fileExtensions(), filepath.Ext(file)) {
			files = append(files, file)
		}
		return nil
	})
	if isRelease {
		files = slices.Insert(files, 0, name)
	}
	return files, err
}

// isAuxiliaryFolder reports whether a folder of a FHIR package contains no definitions (FHIR NPM Package Specification).
func isAuxiliaryFolder(folder string) bool {
	if !slices.Contains([]string{"doc", "example", "examples", "openapi", "other", "rdf", "test", "tests", "xml"}, filepath.Base(folder)) {
		return false
	}
	_, err := os.Stat(filepath.Join(filepath.Dir(folder), manifestName))
	return err == nil
}

func (l *resourceLoader) loadFile(ctx context.Context, name string) (err error) {
	info, err := os.Stat(name)
	if err == nil && (info.IsDir() || filepath.Ext(name) == ".zip") {
		return l.loadRelease(ctx, name)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	src := io.Reader(f)
	if info, err := f.Stat(); err == nil && l.options != nil {
		p := newProgress(ctx, f, name, info.Size(), l.options)
		defer p.clearBar()
		src = p
		l.codeSystem.table.Size = info.Size()
	}
	switch filepath.Ext(name) {
	case ".json":
		return l.readResources(ctx, src, fhirjson.NewOverhead(maxFileOverhead))
	case ".xml":
		return l.loadXML(ctx, src)
	case ".tgz":
		return l.loadPackage(ctx, name, src)
	default:
		return errors.New("none of " + strings.Join(fileExtensions(), ", "))
	}
}

// maxXML is the maximum size of an XML resource in bytes. XML is read into memory; JSON is streamed.
const maxXML = 128 << 20

func (l *resourceLoader) loadXML(ctx context.Context, src io.Reader) error {
	document, err := io.ReadAll(io.LimitReader(src, maxXML+1))
	if err != nil {
		return err
	}
	if len(document) > maxXML {
		return fmt.Errorf("larger than %s, the limit for XML; convert the resource to JSON", fhirjson.FormatSize(maxXML))
	}
	resource, err := negotiation.AppendJSON(nil, document)
	if err != nil {
		return err
	}
	return l.readResources(ctx, bytes.NewReader(resource), fhirjson.NewOverhead(maxFileOverhead))
}

// loadPackage loads a FHIR package: a gzipped tar file with resources in the folder package. Other folders are skipped.
func (l *resourceLoader) loadPackage(ctx context.Context, name string, src io.Reader) error {
	packed := &countingReader{src: src}
	gunzip, err := gzip.NewReader(packed)
	if err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	unzipped := &unpackedReader{countingReader: countingReader{src: gunzip}, packed: packed, max: l.options.MaxPackage}
	archive, short := tar.NewReader(unzipped), fhirjson.NewOverhead(maxFileOverhead)
	found := false
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("tar: %w", err)
		}
		if header.Typeflag == tar.TypeReg && path.Clean(header.Name) == "package/"+manifestName {
			l.readManifest(name, archive)
		}
		if header.Typeflag != tar.TypeReg || !isDefinition(header.Name) {
			continue
		}
		found = true
		if header.Size > l.options.MaxPackage {
			return fmt.Errorf("%s: %w", header.Name, &fhirjson.TooLargeError{Subject: "the file", Max: l.options.MaxPackage})
		}
		l.codeSystem.table.Size = header.Size
		if err := l.readResources(ctx, archive, short); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	// Reading to the end verifies the checksum of the gzip stream, which detects truncation and corruption.
	if _, err := io.Copy(io.Discard, unzipped); err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	if !found {
		return errors.New("no resources in the folder package/: not a FHIR package")
	}
	return nil
}

// isDefinition reports whether a file of a FHIR package contains a definition.
func isDefinition(name string) bool {
	folder, file := path.Split(path.Clean(name))
	return folder == "package/" && path.Ext(file) == ".json" && file != manifestName && !strings.HasPrefix(file, ".")
}

// Sizes in bytes of JSON below which a value counts as short. smallPartSize applies to elements of concept maps and includes of
// value sets, which use more memory than their JSON. smallDefinitionSize applies to definitions.
const (
	smallPartSize       = 160
	smallDefinitionSize = 1024
)

const maxFileOverhead = 64 << 20

// countingReader counts the bytes read from a source.
type countingReader struct {
	src io.Reader
	n   int64
}

// Read implements [io.Reader].
func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.src.Read(b)
	c.n += int64(n)
	return n, err
}

// unpackedReader reads the content of a package. It returns an error if the unpacked content is too large in total or relative
// to the package. Definitions compress by a factor of 10 to 30; a factor of 1000 indicates a decompression bomb.
type unpackedReader struct {
	countingReader
	packed *countingReader
	max    int64
}

// maxRatio is the maximum ratio of unpacked to packed size, enforced above minRatioSize unpacked bytes.
const (
	maxRatio     = 50
	minRatioSize = 16 << 20
)

// Read implements [io.Reader].
func (u *unpackedReader) Read(b []byte) (int, error) {
	n, err := u.countingReader.Read(b)
	switch {
	case u.n > u.max:
		return 0, &fhirjson.TooLargeError{Subject: "the unpacked package", Max: u.max}
	case u.n > minRatioSize && u.n > maxRatio*u.packed.n:
		return 0, fmt.Errorf("the package unpacks to more than %d times its size, like a decompression bomb; to load it anyway, unpack it into a folder", maxRatio)
	}
	return n, err
}

// coreDefinitions contains the CodeSystem, ValueSet and ConceptMap resources of FHIR R4 and the bindings of its
// elements as compressed NDJSON. core/SOURCE.md describes their origin and generation.
//
//go:generate go run ./core/generate -out core/r4.ndjson.zst core/package
//go:embed core/r4.ndjson.zst
var coreDefinitions []byte

// loadEmbedded reads embedded resources. It does nothing if data is nil.
func (l *resourceLoader) loadEmbedded(ctx context.Context, data []byte) error {
	if data == nil {
		return nil
	}
	if len(data) < 64<<10 {
		text, err := embeddedtable.Unpack(data)
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		return l.readResources(ctx, bytes.NewReader(text), fhirjson.NewOverhead(maxFileOverhead))
	}
	// A single goroutine and a small window leave memory and CPU to other work during startup.
	src, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	defer src.Close()
	return l.readResources(ctx, src, fhirjson.NewOverhead(maxFileOverhead))
}

// Terminal returns a writer for Options.Terminal, or nil if the file is not a terminal.
func Terminal(f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return f
}

const (
	logInterval     = 5 * time.Second        // interval between log records
	drawInterval    = 100 * time.Millisecond // interval between redraws of the bar
	clockCheckBytes = 1 << 20                // bytes read between clock readings
)

// progress logs the loading progress of a file and draws a bar on a terminal, unless the file loads quickly.
type progress struct {
	ctx              context.Context
	src              io.Reader
	file             string
	size             int64
	options          *Options
	read             int64
	readAtClockCheck int64 // bytes read at the last clock reading
	lastLogged       time.Time
	lastDrawn        time.Time
	barDrawn         bool
}

func newProgress(ctx context.Context, src io.Reader, file string, size int64, o *Options) *progress {
	now := o.Now()
	return &progress{ctx: ctx, src: src, file: file, size: size, options: o, lastLogged: now, lastDrawn: now}
}

// Read implements [io.Reader].
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	p.add(n)
	return n, err
}

// add adds n bytes and periodically reports the progress.
func (p *progress) add(n int) {
	if p.read += int64(n); p.read-p.readAtClockCheck >= clockCheckBytes {
		p.readAtClockCheck = p.read
		p.report(p.options.Now())
	}
}

func (p *progress) report(now time.Time) {
	if now.Sub(p.lastLogged) >= logInterval {
		p.lastLogged = now
		p.options.Logger.InfoContext(p.ctx, "loading definitions", slog.String("file", p.file),
			slog.Int64("percent", p.percent()), slog.Int64("bytes", p.read), slog.Int64("of", p.size))
	}
	if p.options.Terminal != nil && now.Sub(p.lastDrawn) >= drawInterval {
		p.lastDrawn, p.barDrawn = now, true
		p.draw(p.formatBar())
	}
}

func (p *progress) percent() int64 { return min(100, 100*p.read/max(1, p.size)) }

// formatBar returns a line that overwrites the previous progress bar.
func (p *progress) formatBar() string {
	const width = 40
	full := int(p.percent()) * width / 100
	return fmt.Sprintf("\r[%s%s] %3d %% %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), p.percent(), p.file)
}

// clearBar erases the progress bar.
func (p *progress) clearBar() {
	if p.barDrawn {
		p.draw("\r\x1b[K")
	}
}

// draw writes to the terminal. Write errors are ignored because they do not affect loading.
func (p *progress) draw(s string) {
	_, _ = io.WriteString(p.options.Terminal, s)
}
