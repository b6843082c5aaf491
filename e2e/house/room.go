package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A room is a package, and what was counted in it.
type room struct {
	name              string // its path inside the module
	files, tests      []span
	functions         []span
	types             []structure
	symbols           int
	between, circular int // arrows between its files, and those of them in circles
}

// A span is a file, or a function.
type span struct {
	name  string
	lines int
	code  int // of a file: lines that are not only comment or blank
}

// A structure is a type.
type structure struct {
	name            string
	methods, fields int
	open            int  // fields that are exported or have a name in JSON
	reached, wide   int  // methods and fields, with those of the module's types that it embeds
	shares          bool // it embeds a type of the module that has methods
}

// measureRoom counts what is in a package.
func measureRoom(p *packages.Package) (room, error) {
	r := room{name: strings.TrimPrefix(p.PkgPath, p.Module.Path+"/")}
	for _, symbol := range p.Types.Scope().Names() {
		r.addSymbol(p.Types.Scope().Lookup(symbol), p.Module.Path)
	}
	for _, file := range p.Syntax {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines := p.Fset.Position(f.End()).Line - p.Fset.Position(f.Pos()).Line + 1
				r.functions = append(r.functions, span{name: r.name + "." + functionName(f), lines: lines})
			}
		}
	}
	between := betweenFiles(p)
	r.between, r.circular = len(between), len(between.inCircles())
	return r, r.addFiles(p.Dir)
}

// addFiles counts the lines in a package's folder.
func (r *room) addFiles(folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file := span{r.name + "/" + filepath.Base(name), bytes.Count(text, []byte("\n")), codeLines(text)}
		if strings.HasSuffix(name, "_test.go") {
			r.tests = append(r.tests, file)
		} else {
			r.files = append(r.files, file)
		}
	}
	return nil
}

// codeLines counts the lines on which there is more than a comment. Those within a
// string count as one.
func codeLines(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		position, found, literal := s.Scan()
		if found == token.EOF {
			return len(lines)
		}
		if found != token.SEMICOLON || literal == ";" {
			lines[file.Line(position)] = true
		}
	}
}

// addSymbol counts what a package declares.
func (r *room) addSymbol(symbol types.Object, module string) {
	exported := 0
	if named, ok := symbol.Type().(*types.Named); ok && isType(symbol) {
		s := structure{name: r.name + "." + symbol.Name(), methods: named.NumMethods(), reached: reachableMethods(named, module)}
		for m := range named.Methods() {
			exported += count(m.Exported())
		}
		switch t := named.Underlying().(type) {
		case *types.Interface:
			s.methods = t.NumMethods()
		case *types.Struct:
			s.fields, s.wide, s.shares = t.NumFields(), reachableFields(t, module, map[types.Type]bool{}), sharesMethods(t, module)
			for i := range s.fields {
				inJSON := strings.Contains(t.Tag(i), `json:"`) && !strings.Contains(t.Tag(i), `json:"-"`)
				s.open += count(inJSON || t.Field(i).Exported())
			}
		}
		r.types = append(r.types, s)
	}
	if symbol.Exported() {
		r.symbols += 1 + exported
	}
}

// isType says whether a symbol is a type with a name of its own.
func isType(symbol types.Object) bool {
	name, ok := symbol.(*types.TypeName)
	return ok && !name.IsAlias()
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// functionName is the name of a function, after its type if it is a method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*") + "." + f.Name.Name
}

// large are the types with many methods or fields: those with open fields only, or
// the others.
func (r *room) large(open bool) (large []structure) {
	for _, s := range r.types {
		if (s.methods > manyMethods || s.fields > manyFields) && (s.fields > 0 && s.open == s.fields) == open {
			large = append(large, s)
		}
	}
	return large
}

// over sorts files or functions, and returns those with more lines.
func over(all []span, lines int) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.lines-b.lines, cmp.Compare(a.name, b.name)) })
	i, _ := slices.BinarySearchFunc(all, lines+1, func(s span, lines int) int { return s.lines - lines })
	return all[i:]
}

// isForTests says whether only tests import a package: its name, or that of a package
// around it, ends so.
func (r *room) isForTests() bool { return strings.Contains(r.name+"/", "test/") }

// isInternal says whether the compiler keeps other modules from importing a package.
func (r *room) isInternal() bool { return strings.Contains("/"+r.name+"/", "/internal/") }

// sum adds up the figures of packages.
func sum(rooms []room, title string) *room {
	all := &room{name: fmt.Sprintf("%d %s", len(rooms), title)}
	for _, r := range rooms {
		all.files = append(all.files, r.files...)
		all.tests = append(all.tests, r.tests...)
		all.symbols += r.symbols
		all.between += r.between
		all.circular += r.circular
	}
	return all
}

// print writes a line of the table.
func (r *room) print(w io.Writer) {
	lines, code := size(r.files)
	testLines, _ := size(r.tests)
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n",
		len(r.files), lines, code, len(r.tests), testLines, r.symbols, r.between, r.circular, r.name)
}

func size(files []span) (lines, code int) {
	for _, f := range files {
		lines += f.lines
		code += f.code
	}
	return lines, code
}
