package main

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

// module is the path of the module whose features these are.
const module = "github.com/caddy-fhir/caddy-fhir/"

// A feature is a package that a list imports.
type feature struct {
	folder string // below the root, with slashes
	list   string // file with the import line, likewise
	line   int    // number of the import line, from 1
}

func (f *feature) name() string { return path.Base(f.folder) }

// findFeatures returns the features of the standard build, in the order of its lists.
func findFeatures(root string) ([]feature, error) {
	found, _, err := featuresIn(root, "caddymodule")
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no features: is it the folder of the repository?", root)
	}
	return found, err
}

// featuresIn returns the features that a package imports, and those of the lists that it imports. isList reports whether the
// package has nothing but such imports.
func featuresIn(root, folder string) (found []feature, isList bool, err error) {
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
			imported, ok := blankImport(line)
			if !ok {
				continue
			}
			more, nested, err := featuresIn(root, imported)
			if err != nil {
				return nil, false, err
			}
			if !nested {
				more = []feature{{imported, path.Join(folder, filepath.Base(name)), fileSet.Position(line.Pos()).Line}}
			}
			found = append(found, more...)
		}
	}
	return found, isList && len(found) > 0, nil
}

// isImports reports whether a file has imports and nothing else.
func isImports(file *ast.File) bool {
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
			return false
		}
	}
	return true
}

// blankImport returns the folder of a feature or list that is imported.
func blankImport(line *ast.ImportSpec) (folder string, ok bool) {
	imported, err := strconv.Unquote(line.Path.Value)
	if err != nil || line.Name == nil || line.Name.Name != "_" || strings.HasPrefix(line.Comment.Text(), "core") {
		return "", false
	}
	return strings.CutPrefix(imported, module)
}

// deleteFrom deletes the feature's folder and its import line.
func (f *feature) deleteFrom(root string) error {
	if err := os.RemoveAll(filepath.Join(root, f.folder)); err != nil {
		return err
	}
	list := filepath.Join(root, f.list)
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	lines = append(lines[:f.line-1], lines[f.line:]...)
	return os.WriteFile(list, []byte(strings.Join(lines, "\n")), 0o600)
}
