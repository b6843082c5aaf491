package caddymodule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every exported symbol has a doc comment, and the comment of every field of Caddy's JSON contains its default.
func TestDocComments(t *testing.T) {
	t.Parallel()
	count := 0
	for _, root := range []string{".", "../terminology"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.Name() == "testdata":
				return filepath.SkipDir
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				count++
				checkDocComments(t, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if count < 200 {
		t.Errorf("%d files", count)
	}
}

func checkDocComments(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, bare := range undocumented(file) {
		t.Errorf("%s: %s has no doc comment", files.Position(bare.Pos()), bare.Name)
	}
	if dir := filepath.ToSlash(filepath.Dir(path)); dir != "fhirapp" && dir != "internal/option" && !strings.HasPrefix(dir, "modules/") && !strings.HasPrefix(dir, "features/") {
		return // the package has no Caddy modules
	}
	for _, field := range configurationFields(file) {
		if text := field.Doc.Text(); !strings.Contains(text, "Default") && !strings.Contains(text, "Required") {
			t.Errorf("%s: %s says neither Default nor Required", files.Position(field.Pos()), field.Names[0].Name)
		}
	}
}

// undocumented returns the names in a file that need a doc comment and have none.
func undocumented(file *ast.File) (names []*ast.Ident) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
				names = append(names, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				names = append(names, undocumentedSpec(d, spec)...)
			}
		}
	}
	return names
}

// exportedReceiver is false for methods of unexported types.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	of := d.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	name, ok := of.(*ast.Ident)
	return ok && name.IsExported()
}

// undocumentedSpec accepts the comment of a group for each value of the group.
func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) (names []*ast.Ident) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				names = append(names, name)
			}
		}
	case *ast.TypeSpec:
		if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
			names = append(names, s.Name)
		}
		names = append(names, undocumentedMembers(s)...)
	}
	return names
}

// configurationFields returns the fields of exported types that JSON can set.
func configurationFields(file *ast.File) (fields []*ast.Field) {
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		if of, ok := spec.Type.(*ast.StructType); ok && !isAnswer(of) {
			for _, field := range of.Fields.List {
				if field.Tag != nil && len(field.Names) > 0 && inConfiguration(field) {
					fields = append(fields, field)
				}
			}
		}
		return false
	})
	return fields
}

// isAnswer reports whether a struct is a JSON response: it has fields that are never omitted.
func isAnswer(of *ast.StructType) bool {
	return slices.ContainsFunc(of.Fields.List, func(f *ast.Field) bool {
		return f.Tag != nil && !strings.Contains(f.Tag.Value, "omit") && !strings.Contains(f.Tag.Value, `"-"`)
	})
}

// undocumentedMembers returns the undocumented exported fields and methods of an exported type.
func undocumentedMembers(s *ast.TypeSpec) (names []*ast.Ident) {
	var members *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		members = of.Fields
	case *ast.InterfaceType:
		members = of.Methods
	}
	if members == nil || !s.Name.IsExported() {
		return nil
	}
	for _, field := range members.List {
		for _, name := range field.Names {
			if name.IsExported() && field.Doc == nil && field.Comment == nil && inConfiguration(field) {
				names = append(names, name)
			}
		}
	}
	return names
}

// inConfiguration is false for fields with a tag that excludes them from JSON.
func inConfiguration(field *ast.Field) bool {
	if field.Tag == nil {
		return true
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	return err != nil || reflect.StructTag(tag).Get("json") != "-"
}
