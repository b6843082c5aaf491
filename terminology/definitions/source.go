package definitions

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

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
