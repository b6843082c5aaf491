package bearer

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

const (
	// maxParameterFile is how large a file of SearchParameter resources may be, in bytes. Larger ones in a package are
	// something else, and passed over.
	maxParameterFile = 16 << 20
	// maxParameterPackage is how large a package may be once it is unpacked, in bytes.
	maxParameterPackage = 4 << 30
)

// searchParameters are the site's own search parameters.
type searchParameters struct {
	set    searchparam.Set
	logger *slog.Logger
}

// newSearchParameters reads the site's own search parameters. One that cannot be judged is an error; among those of a
// package, which are there for many servers, it is left out with a warning.
func newSearchParameters(patterns []string, logger *slog.Logger) (searchparam.Set, error) {
	p := searchParameters{logger: logger}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err == nil && len(files) == 0 {
			err = fs.ErrNotExist
		}
		for i := 0; err == nil && i < len(files); i++ {
			err = p.addFile(files[i])
		}
		if err != nil {
			return p.set, fmt.Errorf("search_parameters %s: %w", pattern, err)
		}
	}
	return p.set, nil
}

// addFile adds those of a file: a resource, a Bundle of them, or a FHIR package.
func (p *searchParameters) addFile(name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch filepath.Ext(name) {
	case ".tgz":
		return p.addPackage(f)
	case ".json":
		return p.addResources(f, func(err error) error { return err })
	}
	return errors.New("none of .json, .tgz")
}

// addPackage adds those of a FHIR package: its resources are in the folder package.
func (p *searchParameters) addPackage(src io.Reader) error {
	unzipped, err := gzip.NewReader(src)
	if err != nil {
		return err
	}
	archive := tar.NewReader(io.LimitReader(unzipped, maxParameterPackage))
	leaveOut := func(err error) error {
		p.logger.Warn("a search parameter of a package is left out: apps with bound scopes cannot search by it", "error", err)
		return nil
	}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		isResource := path.Dir(path.Clean(header.Name)) == "package" && path.Ext(header.Name) == ".json"
		if header.Typeflag != tar.TypeReg || !isResource || header.Size > maxParameterFile {
			continue
		}
		if err := p.addResources(archive, leaveOut); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// addResources adds a SearchParameter, or those of a Bundle. What R4 has itself stays as R4 has it.
func (p *searchParameters) addResources(src io.Reader, failed func(error) error) error {
	text, err := io.ReadAll(io.LimitReader(src, maxParameterFile+1))
	if err == nil && len(text) > maxParameterFile {
		err = fmt.Errorf("larger than %d bytes", maxParameterFile)
	}
	if err != nil {
		return err
	}
	return p.addResource(text, failed)
}

// addResource adds those of a text. A definition that fails is told to a function, whose error counts.
func (p *searchParameters) addResource(text []byte, failed func(error) error) error {
	var kind struct{ ResourceType string }
	if err := json.Unmarshal(text, &kind); err != nil {
		return err
	}
	switch kind.ResourceType {
	case "SearchParameter":
		var d searchparam.Definition
		err := json.Unmarshal(text, &d)
		if err == nil {
			err = p.set.Add(d)
		}
		if err != nil && !errors.Is(err, searchparam.ErrKnown) {
			return failed(fmt.Errorf("%s: %w", d.URL, err))
		}
	case "Bundle":
		var bundle struct {
			Entry []struct{ Resource json.RawMessage }
		}
		if err := json.Unmarshal(text, &bundle); err != nil {
			return err
		}
		for _, entry := range bundle.Entry {
			if err := p.addResource(entry.Resource, failed); err != nil {
				return err
			}
		}
	}
	return nil
}
