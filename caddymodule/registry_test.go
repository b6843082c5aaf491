package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// registered maps the packages registered at caddyserver.com/download to a module in each.
var registered = map[string]string{
	"caddymodule":                "fhir",
	"caddymodule/modules/bearer": "http.handlers.fhir_bearer",
	"caddymodule/modules/expand": "http.handlers.fhir_expand",
}

// TestRegistry checks each registered package and its imports against the rules of Caddy's module registry
// (github.com/caddyserver/moduledoc), which parses the source code and rejects a package if it cannot parse one of its modules.
func TestRegistry(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for entry, wanted := range registered {
		i := slices.IndexFunc(packages, func(p goPackage) bool { return p.ImportPath == entry })
		if i < 0 {
			t.Errorf("no package %s", entry)
			continue
		}
		docs := map[string]string{}
		for _, dep := range append(slices.Clone(packages[i].Deps), entry) {
			if !isInModule(dep) {
				continue
			}
			found, err := scanPackage(parsePackage(t, dep))
			if err != nil {
				t.Errorf("%s, which %s imports: %v", dep, entry, err)
			}
			maps.Copy(docs, found)
		}
		if !strings.Contains(docs[wanted], "FHIR") {
			t.Errorf("%s offers no %s with a description: %q", entry, wanted, docs[wanted])
		}
		for id, doc := range docs {
			if doc == "" {
				t.Errorf("%s: %s has no description", entry, id)
			}
		}
	}
}

// TestRegistryTypes checks that the registry can parse the types in each module's JSON. The registry finds the fields of a
// struct only at a declaration of the type as a struct.
func TestRegistryTypes(t *testing.T) {
	t.Parallel()
	seen, count := map[reflect.Type]bool{}, 0
	for _, id := range caddy.Modules() {
		info, err := caddy.GetModule(id)
		if err != nil {
			t.Fatal(err)
		}
		of := reflect.TypeOf(info.New())
		for _, s := range jsonStructs(of, seen) {
			name, _, _ := strings.Cut(s.Name(), "[")
			if folder, ours := strings.CutPrefix(s.PkgPath(), module); ours {
				count++
				if !isDeclaredAsStruct(parsePackage(t, folder), name) {
					t.Errorf("%s: %s is not declared as a struct", id, s)
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("%d types", count)
	}
}

// TestScanPackage checks that a violation of each rule is detected.
func TestScanPackage(t *testing.T) {
	t.Parallel()
	const method = "func (*X) CaddyModule() caddy.ModuleInfo { return caddy.ModuleInfo{ID: \"x\", New: func() caddy.Module { return new(X) }} }\n"
	for name, tt := range map[string]struct{ text, err string }{
		"new":            {"func init() { caddy.RegisterModule(new(X)) }\n" + method, ""},
		"literal":        {"func init() { caddy.RegisterModule(X{}) }\n" + method, ""},
		"pointer":        {"func init() { caddy.RegisterModule(&X{}) }\n" + method, "new(X) or X{}"},
		"variable":       {"var x X\nfunc init() { caddy.RegisterModule(x) }\n" + method, "new(X) or X{}"},
		"not registered": {method, "not registered"},
		"no method":      {"func init() { caddy.RegisterModule(new(X)) }\n", "no method CaddyModule"},
		"computed ID":    {"func init() { caddy.RegisterModule(new(X)) }\n" + strings.Replace(method, `"x"`, `"x" + y`, 1), "literal ID"},
		"variable info":  {"func init() { caddy.RegisterModule(new(X)) }\nfunc (*X) CaddyModule() caddy.ModuleInfo { return info }\n", "literal ID"},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n\n// X is for FHIR.\ntype X struct{}\n"+tt.text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		found, err := scanPackage([]*ast.File{file})
		if tt.err == "" && (err != nil || found["x"] != "X is for FHIR.\n") || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %q, %v", name, found, err)
		}
	}
}

func parsePackage(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(names), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// scanPackage returns the doc comments of the modules that a package registers, by module ID.
func scanPackage(files []*ast.File) (docs map[string]string, err error) {
	types, ids := map[string]bool{}, map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				if selector, ok := n.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "RegisterModule" {
					name := registeredType(n.Args)
					if types[name] = true; name == "" {
						err = cmp.Or(err, errors.New("the argument of RegisterModule must be new(X) or X{}"))
					}
				}
			case *ast.FuncDecl:
				if n.Name.Name == "CaddyModule" && n.Recv != nil {
					of := receiverOf(n)
					if ids[of] = literalID(n.Body); ids[of] == "" {
						err = cmp.Or(err, fmt.Errorf("CaddyModule of %s must return caddy.ModuleInfo{…} with a literal ID at once", of))
					}
				}
			}
			return true
		})
	}
	docs = map[string]string{}
	for of, id := range ids {
		if docs[id] = docOf(files, of); !types[of] {
			err = cmp.Or(err, fmt.Errorf("%s has a method CaddyModule and is not registered", of))
		}
	}
	for of := range types {
		if _, found := ids[of]; !found {
			err = cmp.Or(err, fmt.Errorf("%s is registered and has no method CaddyModule in its package", of))
		}
	}
	return docs, err
}

// registeredType returns the X in new(X) or X{}, or "" for other expressions.
func registeredType(args []ast.Expr) string {
	if len(args) != 1 {
		return ""
	}
	var of ast.Expr
	switch a := args[0].(type) {
	case *ast.CompositeLit:
		of = a.Type
	case *ast.CallExpr:
		if called, ok := a.Fun.(*ast.Ident); ok && called.Name == "new" && len(a.Args) == 1 {
			of = a.Args[0]
		}
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

func receiverOf(method *ast.FuncDecl) string {
	of := method.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

// literalID returns the ID in the composite literal that the first statement of body returns.
func literalID(body *ast.BlockStmt) (id string) {
	if len(body.List) == 0 {
		return ""
	}
	result, ok := body.List[0].(*ast.ReturnStmt)
	if !ok || len(result.Results) != 1 {
		return ""
	}
	info, ok := result.Results[0].(*ast.CompositeLit)
	if !ok {
		return ""
	}
	for _, element := range info.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "ID" {
			if value, ok := pair.Value.(*ast.BasicLit); ok {
				id, _ = strconv.Unquote(value.Value)
			}
		}
	}
	return id
}

// typeOf returns the declaration of the named type in a package.
func typeOf(files []*ast.File, name string) (declaration *ast.GenDecl, spec *ast.TypeSpec) {
	for _, file := range files {
		for _, d := range file.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range general.Specs {
				if found, ok := s.(*ast.TypeSpec); ok && found.Name.Name == name {
					return general, found
				}
			}
		}
	}
	return nil, nil
}

func docOf(files []*ast.File, name string) string {
	declaration, spec := typeOf(files, name)
	if spec == nil {
		return ""
	}
	return cmp.Or(spec.Doc.Text(), declaration.Doc.Text())
}

func isDeclaredAsStruct(files []*ast.File, name string) bool {
	_, spec := typeOf(files, name)
	if spec == nil {
		return false
	}
	_, isStruct := spec.Type.(*ast.StructType)
	return isStruct
}

// jsonStructs returns the named structs in the JSON of a type. As in the registry, exported fields are included if they are
// part of the JSON or embedded.
func jsonStructs(of reflect.Type, seen map[reflect.Type]bool) (structs []reflect.Type) {
	if seen[of] {
		return nil
	}
	seen[of] = true
	switch of.Kind() {
	case reflect.Map:
		return append(jsonStructs(of.Key(), seen), jsonStructs(of.Elem(), seen)...)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return jsonStructs(of.Elem(), seen)
	case reflect.Struct:
	default:
		return nil
	}
	if of.Name() != "" {
		structs = append(structs, of)
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && name != "-" && (name != "" || field.Anonymous) {
			structs = append(structs, jsonStructs(field.Type, seen)...)
		}
	}
	return structs
}
