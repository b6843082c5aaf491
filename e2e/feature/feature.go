// Package feature finds the features of the standard build: packages with a blank import in the lists caddymodule/*.go, or in
// packages with only such imports. Imports with a comment that begins with "core" are not features.
package feature

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// A Feature is a package that a list imports.
type Feature struct {
	Folder string // path relative to the root, with slashes
	List   string // path of the file with the import line, relative to the root
	Line   int    // number of the import line, from 1
}

// Name returns the last element of the feature's folder.
func (f *Feature) Name() string { return path.Base(f.Folder) }

// Find returns the features of the standard build in folder, in the order of its lists. module is the module path in go.mod.
func Find(root, module string) ([]Feature, error) {
	found, _, err := featuresIn(root, module+"/", "caddymodule")
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no features: is it the folder of the repository?", root)
	}
	return found, err
}

// featuresIn returns the features that a package imports, including those in the lists that it imports. isList reports whether
// the package contains only such imports.
func featuresIn(root, module, folder string) (found []Feature, isList bool, err error) {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return nil, false, err
	}
	isList = true
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fileSet := token.NewFileSet()
		file, err := parser.ParseFile(fileSet, name, nil, parser.ParseComments)
		if err != nil {
			return nil, false, err
		}
		isList = isList && isImports(file)
		for _, line := range file.Imports {
			imported, ok := blankImport(module, line)
			if !ok {
				continue
			}
			more, nested, err := featuresIn(root, module, imported)
			if err != nil {
				return nil, false, err
			}
			if !nested {
				more = []Feature{{imported, path.Join(folder, filepath.Base(name)), fileSet.Position(line.Pos()).Line}}
			}
			found = append(found, more...)
		}
	}
	return found, isList && len(found) > 0, nil
}

// isImports reports whether a file contains only imports.
func isImports(file *ast.File) bool {
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			return false
		}
	}
	return true
}

// blankImport returns the folder of the feature or list that the line imports. ok is false for other imports.
func blankImport(module string, line *ast.ImportSpec) (folder string, ok bool) {
	imported, err := strconv.Unquote(line.Path.Value)
	if err != nil || line.Name == nil || line.Name.Name != "_" || strings.HasPrefix(line.Comment.Text(), "core") {
		return "", false
	}
	return strings.CutPrefix(imported, module)
}

// DeleteFrom deletes the feature's folder and its import line from the copy of the repository at root.
func (f *Feature) DeleteFrom(root string) error {
	if err := os.RemoveAll(filepath.Join(root, f.Folder)); err != nil {
		return err
	}
	list := filepath.Join(root, f.List)
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	lines = append(lines[:f.Line-1], lines[f.Line:]...)
	return os.WriteFile(list, []byte(strings.Join(lines, "\n")), 0o600)
}
