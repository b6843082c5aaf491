package definitions

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// ReleaseFormat is a format in which a publisher releases code systems: several files in a zip archive or in a folder. Each
// archive, and each folder that contains a release, is one release.
type ReleaseFormat struct {
	// Name is the name of the format in messages, such as "SNOMED CT RF2".
	Name string

	// IsMarker reports whether a release in this format contains a file with this slash-separated path. It should match a file
	// that every release contains and that no other format has.
	IsMarker func(file string) bool

	// Load reads a release. Its errors name the file and line. It may open several files at the same time.
	Load func(ctx context.Context, r *Release) (*ReleaseContent, error)
}

// ReleaseContent is the content of a release.
type ReleaseContent struct {
	// Sources are the code systems. Their System may be a large table; it must not be shared with other releases.
	Sources []codesystem.Source

	// ValueSet returns a value set that a code system implies, such as http://snomed.info/sct?fhir_vs=refset/1 or
	// http://loinc.org/vs/LL1-2. ok is false if the URL identifies no value set of this release. Default: none.
	ValueSet func(url string) (vs ImpliedValueSet, ok bool)

	// ConceptMap returns a concept map that a code system implies. ok is false if the URL identifies no concept map of this
	// release. Default: none.
	ConceptMap func(url string) (m *ConceptMap, ok bool)
}

// ImpliedValueSet is a value set without a resource that a release implies.
type ImpliedValueSet struct {
	// Name and Title are the members of the same names. Default: those of the code system.
	Name, Title string

	// HasSystemVersion gives the value set the version of the code system. Default: only a version in the reference.
	HasSystemVersion bool

	// Include is the only include. Its System and Version identify a code system of the release.
	Include ConceptSet
}

var releaseFormats []ReleaseFormat

// RegisterReleaseFormat adds a format of releases. Packages call it in init.
func RegisterReleaseFormat(f ReleaseFormat) { releaseFormats = append(releaseFormats, f) }

// Release is an archive or a folder with files of a publisher. It is safe for concurrent use.
type Release struct {
	// Name is the path of the archive or folder.
	Name string

	// Files are the slash-separated paths of the files, relative to the archive or folder, in lexical order.
	Files []string

	// Logger receives what a user should know about the content.
	Logger *slog.Logger

	ctx      context.Context
	open     func(file string) (io.ReadCloser, error)
	size     func(file string) (unpacked, packed int64, err error)
	max      int64
	mu       sync.Mutex
	progress *progress
}

// Plan declares the files that Load reads completely. It returns an error if one of them is too large, or if an archive
// unpacks like a decompression bomb. Reading reports the progress relative to their total size.
func (r *Release) Plan(files []string) error {
	for _, file := range files {
		unpacked, packed, err := r.size(file)
		switch {
		case err != nil:
			return err
		case unpacked > r.max:
			return fmt.Errorf("%s: %w", file, &fhirjson.TooLargeError{Subject: "the file", Max: r.max})
		case unpacked > minRatioSize && unpacked > maxRatio*packed:
			return fmt.Errorf("%s unpacks to more than %d times its size, like a decompression bomb; to load it anyway, unpack the archive into a folder", file, maxRatio)
		}
		r.progress.size += unpacked
	}
	return nil
}

// Size returns the unpacked size of a file in bytes.
func (r *Release) Size(file string) (int64, error) {
	unpacked, _, err := r.size(file)
	return unpacked, err
}

// Open opens a file. Reading it returns the error of the context once that is done.
func (r *Release) Open(file string) (io.ReadCloser, error) {
	f, err := r.open(file)
	if err != nil {
		return nil, err
	}
	return &releaseFile{ReadCloser: f, release: r}, nil
}

// releaseFile is an open file of a release. It reports the progress.
type releaseFile struct {
	io.ReadCloser
	release *Release
}

// Read implements [io.Reader].
func (f *releaseFile) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	f.release.mu.Lock()
	defer f.release.mu.Unlock()
	f.release.progress.add(n)
	return n, cmp.Or(f.release.ctx.Err(), err)
}

// errNoRelease is the error for an archive in no known format.
var errNoRelease = errors.New("the archive contains no release in a known format")

// loadRelease loads an archive or folder in the first format that recognizes one of its files.
func (l *resourceLoader) loadRelease(ctx context.Context, name string) (err error) {
	r := &Release{Name: name, Logger: l.options.Logger, ctx: ctx, max: l.options.MaxPackage}
	r.progress = newProgress(ctx, nil, name, 0, l.options)
	defer r.progress.clearBar()
	archive, err := r.list()
	if err != nil {
		return err
	}
	slices.Sort(r.Files)
	if archive != nil {
		defer func() { err = errors.Join(err, archive.Close()) }()
	}
	for _, format := range releaseFormats {
		if !slices.ContainsFunc(r.Files, format.IsMarker) {
			continue
		}
		content, err := format.Load(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", format.Name, err)
		}
		return l.addRelease(content)
	}
	return errNoRelease
}

// addRelease adds the code systems of a release, with their usage weights.
func (l *resourceLoader) addRelease(content *ReleaseContent) error {
	for _, s := range content.Sources {
		cs, err := newSourceSystem(s)
		if err != nil {
			return err
		}
		cs.isBuiltIn, cs.isReleased = false, true
		if w, ok := s.System.(weighable); ok {
			l.definitions.Usage.applyTo(s.URL, w)
		}
		l.definitions.Systems.AddCodeSystem(cs)
	}
	l.definitions.implied = append(l.definitions.implied, content)
	return nil
}

// weighable is a code system with usage weights that are set before the first search.
type weighable interface {
	SetWeights(weights iter.Seq2[string, float64])
	SetItemWeights()
}

// maxReleaseFiles is the maximum number of files in an archive or folder. Releases have at most a few hundred.
const maxReleaseFiles = 100_000

// list lists the files of the archive or folder. The caller must close the archive.
func (r *Release) list() (archive io.Closer, err error) {
	if info, err := os.Stat(r.Name); err != nil || info.IsDir() {
		return nil, cmp.Or(err, r.listFolder())
	}
	opened, err := zip.OpenReader(r.Name)
	if err != nil {
		return nil, fmt.Errorf("zip: %w", err)
	}
	if err := r.listArchive(&opened.Reader); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

func (r *Release) listArchive(archive *zip.Reader) error {
	// This decompressor is faster than that of the standard library.
	archive.RegisterDecompressor(zip.Deflate, flate.NewReader)
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") || strings.HasPrefix(path.Base(f.Name), ".") {
			continue
		}
		if files[f.Name] != nil {
			return fmt.Errorf("the archive contains the file %s twice", f.Name)
		}
		files[f.Name] = f
		r.Files = append(r.Files, f.Name)
	}
	r.open = func(file string) (io.ReadCloser, error) { return files[file].Open() }
	r.size = func(file string) (unpacked, packed int64, err error) {
		return int64(files[file].UncompressedSize64), int64(files[file].CompressedSize64), nil
	}
	return r.checkFileCount()
}

func (r *Release) listFolder() error {
	err := walkFolder(r.Name, func(file string, entry fs.DirEntry) error {
		if entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			return nil
		}
		r.Files = append(r.Files, file)
		return r.checkFileCount()
	})
	r.open = func(file string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(r.Name, filepath.FromSlash(file)))
	}
	r.size = func(file string) (unpacked, packed int64, err error) {
		info, err := os.Stat(filepath.Join(r.Name, filepath.FromSlash(file)))
		if err != nil {
			return 0, 0, err
		}
		return info.Size(), info.Size(), nil
	}
	return err
}

func (r *Release) checkFileCount() error {
	if len(r.Files) > maxReleaseFiles {
		return fmt.Errorf("more than %d files", maxReleaseFiles)
	}
	return nil
}

// walkFolder calls visit with the slash-separated relative paths of a folder, its subfolders and files. The folder itself may be a
// symbolic link. Named pipes and other special files, which could block, are skipped.
func walkFolder(folder string, visit func(relative string, entry fs.DirEntry) error) error {
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || isSpecial(file, entry) {
			return err
		}
		return visit(relativePath(root, file), entry)
	})
}

// isSpecial reports whether a file, or the target of a symbolic link, is neither a regular file nor a folder.
func isSpecial(file string, entry fs.DirEntry) bool {
	mode := entry.Type()
	if info, err := os.Stat(file); mode&fs.ModeSymlink != 0 && err == nil {
		mode = info.Mode().Type()
	}
	return mode&^(fs.ModeDir|fs.ModeSymlink) != 0
}

// relativePath returns the slash-separated path of a file relative to a folder that contains it.
func relativePath(folder, file string) string {
	relative, err := filepath.Rel(folder, file)
	if err != nil {
		relative = file // cannot happen: file is below folder
	}
	return filepath.ToSlash(relative)
}

// isReleaseMarker reports whether any format recognizes a file.
func isReleaseMarker(file string) bool {
	return slices.ContainsFunc(releaseFormats, func(f ReleaseFormat) bool { return f.IsMarker(file) })
}

// impliedValueSet returns a value set that a release implies. Releases loaded later come first.
func (d *Set) impliedValueSet(reference string) (*ValueSet, bool) {
	for _, content := range slices.Backward(d.implied) {
		if content.ValueSet == nil {
			continue
		}
		url, version := reference, "" // an expression in the URL may contain |
		implied, ok := content.ValueSet(url)
		if !ok {
			url, version = outcome.SplitCanonical(reference)
			implied, ok = content.ValueSet(url)
		}
		if !ok || version != "" && implied.Include.Version != "" && !MatchesVersion(implied.Include.Version, version) {
			continue
		}
		implied.Include.Version = cmp.Or(implied.Include.Version, version)
		if index := d.Systems.CodeSystem(implied.Include.System, implied.Include.Version); index != None {
			return newImpliedValueSet(reference, url, d.Systems.CodeSystems[index], &implied), true
		}
	}
	return nil, false
}

func newImpliedValueSet(reference, url string, cs *CodeSystem, implied *ImpliedValueSet) *ValueSet {
	vs := newImplicitValueSet(reference, cs, implied.Include)
	_, vs.Version = outcome.SplitCanonical(strings.TrimPrefix(reference, url))
	if implied.HasSystemVersion {
		vs.Version = cs.Version
	}
	vs.URL, vs.Name, vs.Title = url, cmp.Or(implied.Name, vs.Name), cmp.Or(implied.Title, vs.Title)
	return vs
}

// ImpliedConceptMap returns a concept map that a release implies. The release is that of the code system to which the reference
// resolves. version is the version of the code system in which a code was recorded; it applies if the map translates from system.
func (d *Set) ImpliedConceptMap(reference, system, version string) (*ConceptMap, bool) {
	url, pinned := outcome.SplitCanonical(reference)
	for _, content := range slices.Backward(d.implied) {
		if content.ConceptMap == nil {
			continue
		}
		m, ok := content.ConceptMap(url)
		if !ok || pinned != "" && !MatchesVersion(m.Definition.Version, pinned) {
			continue
		}
		from, wanted := &m.Groups[0], pinned
		if wanted == "" && (system == "" || system == from.Source) {
			wanted = version
		}
		if from.SourceVersion != "" && !MatchesVersion(wanted, from.SourceVersion) {
			wanted = from.SourceVersion
		}
		if d.isCodeSystemOf(content, from.Source, wanted) {
			return m, true
		}
	}
	return nil, false
}

// isCodeSystemOf reports whether a reference to a code system, with or without a version, resolves to a release.
func (d *Set) isCodeSystemOf(content *ReleaseContent, url, version string) bool {
	index := d.Systems.CodeSystem(url, version)
	return index != None && slices.ContainsFunc(content.Sources, func(s codesystem.Source) bool {
		return s.System == d.Systems.CodeSystems[index].Concepts.System
	})
}
