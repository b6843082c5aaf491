package caddymodule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every exported symbol has a doc comment. The comment of every field in Caddy's JSON configuration states its default.
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
			t.Errorf("%s: the comment of %s contains neither Default nor Required", files.Position(field.Pos()), field.Names[0].Name)
		}
	}
}

// undocumented returns the names in a file that lack a required doc comment.
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

// exportedReceiver returns false for methods of unexported types.
func exportedReceiver(d *ast.FuncDecl) bool {
	return d.Recv == nil || ast.IsExported(receiverName(d))
}

// receiverName returns the name of a method's type.
func receiverName(d *ast.FuncDecl) string {
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
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// undocumentedSpec returns the names in a spec that lack a doc comment. The comment of a group documents all of its values.
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

// configurationFields returns the fields of exported types that can be set in JSON.
func configurationFields(file *ast.File) (fields []*ast.Field) {
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		if of, ok := spec.Type.(*ast.StructType); ok && !isJSONResponse(of) {
			for _, field := range of.Fields.List {
				if field.Tag != nil && len(field.Names) > 0 && isConfigurable(field) {
					fields = append(fields, field)
				}
			}
		}
		return false
	})
	return fields
}

// isJSONResponse reports whether a struct is a JSON response: it has fields without omitempty or omitzero.
func isJSONResponse(of *ast.StructType) bool {
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
			if name.IsExported() && field.Doc == nil && field.Comment == nil && isConfigurable(field) {
				names = append(names, name)
			}
		}
	}
	return names
}

// isConfigurable returns false for fields that their tag excludes from JSON.
func isConfigurable(field *ast.Field) bool {
	if field.Tag == nil {
		return true
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	return err != nil || reflect.StructTag(tag).Get("json") != "-"
}

// docLink matches doc links to declarations: [Name], [Type.Method], [package.Name], [package.Type.Method].
var docLink = regexp.MustCompile(`\[\*?([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?(?:\.([A-Za-z]\w*))?\](?:[^(:\w]|$)`)

// TestDocLinks checks that each doc link names a declaration in the same package or in a package of this module that the
// package imports.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	packages, count := map[string]*linkedPackage{}, 0
	for _, root := range []string{".", "../terminology"} {
		err := filepath.WalkDir(root, func(folder string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			if err == nil && entry.IsDir() {
				packages[filepath.ToSlash(filepath.Clean(folder))], err = readLinks(folder)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packages {
		for _, link := range p.links {
			count++
			if !link.leadsSomewhere(p, packages) {
				t.Errorf("%s: [%s] names nothing", link.at, strings.Join(link.words, "."))
			}
		}
	}
	if count < 200 {
		t.Errorf("%d links", count)
	}
}

// linkedPackage contains the declarations in a folder (methods and fields as Type.Name) and the links in its comments.
type linkedPackage struct {
	declared map[string]bool
	embeds   map[string]bool   // types with embedded fields, and therefore with unknown members
	imports  map[string]string // folder by package name; "" for packages of other modules
	links    []link
}

type link struct {
	at    token.Position
	words []string
}

func readLinks(folder string) (*linkedPackage, error) {
	p, files := &linkedPackage{declared: map[string]bool{}, embeds: map[string]bool{}, imports: map[string]string{}}, token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, parseErr := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if parseErr != nil {
			return nil, parseErr
		}
		p.declare(file)
		maps.Copy(p.imports, importedFolders(file))
		for _, group := range file.Comments {
			for _, match := range docLink.FindAllStringSubmatch(group.Text(), -1) {
				words := slices.DeleteFunc(match[1:], func(word string) bool { return word == "" })
				if len(words) > 1 || ast.IsExported(words[0]) {
					p.links = append(p.links, link{files.Position(group.Pos()), words})
				}
			}
		}
	}
	return p, err
}

// majorVersion matches a major version at the end of an import path, which is not the package's name.
var majorVersion = regexp.MustCompile(`/v\d+$`)

func importedFolders(file *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		folder, _ := strconv.Unquote(spec.Path.Value)
		name := strings.TrimPrefix(path.Base(majorVersion.ReplaceAllString(folder, "")), "go-")
		if spec.Name != nil {
			name = spec.Name.Name
		}
		switch below, found := strings.CutPrefix(folder, "github.com/caddy-fhir/caddy-fhir/"); {
		case !found:
			imports[name] = ""
		case strings.HasPrefix(below, "caddymodule/"):
			imports[name] = strings.TrimPrefix(below, "caddymodule/")
		default:
			imports[name] = "../" + below
		}
	}
	return imports
}

func (p *linkedPackage) declare(file *ast.File) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiverName(d) + "." + name
			}
			p.declared[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				p.declareSpec(spec)
			}
		}
	}
}

func (p *linkedPackage) declareSpec(spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			p.declared[name.Name] = true
		}
	case *ast.TypeSpec:
		p.declared[s.Name.Name] = true
		var members *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		}
		if members == nil {
			return
		}
		for _, field := range members.List {
			if len(field.Names) == 0 {
				p.embeds[s.Name.Name] = true
			}
			for _, name := range field.Names {
				p.declared[s.Name.Name+"."+name.Name] = true
			}
		}
	}
}

// leadsSomewhere reports whether the target of a link exists. Declarations in packages of other modules are not checked.
func (l link) leadsSomewhere(own *linkedPackage, packages map[string]*linkedPackage) bool {
	if own.declared[strings.Join(l.words, ".")] || own.embeds[l.words[0]] {
		return true
	}
	folder, imported := own.imports[l.words[0]]
	switch {
	case len(l.words) == 1 || own.declared[l.words[0]]:
		return false
	case !imported:
		return isStandard[l.words[0]]
	case folder == "" || packages[folder] == nil:
		return true
	}
	there := packages[folder]
	return there.declared[strings.Join(l.words[1:], ".")] || there.embeds[l.words[1]]
}

// isStandard contains the packages of the standard library that comments reference without an import.
var isStandard = map[string]bool{"http": true, "io": true, "time": true}
