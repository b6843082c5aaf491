package documents

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

var (
	// fileName is a file's, as documents write it: perhaps with folders, perhaps with *.
	fileName = regexp.MustCompile(`[\w.*/-]*\w\.(?:go|mjs|txt|md|sh|yml)\b`)

	// linkText is what a link in Markdown shows; where it leads is its other half.
	linkText = regexp.MustCompile(`\[[^]]*\]\(`)
)

// Each file that a doc.go or docs/architecture.md names exists: in its own folder, or in
// one above it.
func TestDocumentsNameFiles(t *testing.T) {
	t.Parallel()
	count := 0
	for _, document := range append(docFiles(t), "../../docs/architecture.md") {
		text := gatewaytest.ReadFile(t, document)
		for _, name := range fileName.FindAllString(linkText.ReplaceAllString(text, "("), -1) {
			count++
			if !isThere(filepath.Dir(document), name) {
				t.Errorf("%s names %s, which is not there", document, name)
			}
		}
	}
	if count < 200 {
		t.Errorf("%d files are named", count)
	}
}

// docFiles are the files doc.go of the repository.
func docFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.Name() == "doc.go":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// isThere says whether a file is in a folder, or in one above it.
func isThere(folder, name string) bool {
	for {
		if found, err := filepath.Glob(filepath.Join(folder, name)); err == nil && len(found) > 0 {
			return true
		}
		if folder == "../.." || !strings.HasPrefix(folder, "../../") {
			return false
		}
		folder = filepath.Dir(folder)
	}
}
