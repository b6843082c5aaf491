package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

// executedFunctions are the module's functions that a request executes, by file.
type executedFunctions map[string][]string

// findExecuted finds the functions that each round of a benchmark executes. It compares the execution counts of two runs with
// different numbers of rounds.
func findExecuted(folder, room, benchmark string) (executedFunctions, error) {
	few, err := profile(folder, room, benchmark, 10)
	if err != nil {
		return nil, err
	}
	more, err := profile(folder, room, benchmark, 30)
	if err != nil {
		return nil, err
	}
	w := executedFunctions{}
	for file, blocks := range more {
		before := few[file]
		functions, err := functionsOf(folder, file)
		if err != nil {
			return nil, err
		}
		for _, f := range functions {
			if slices.ContainsFunc(slices.Collect(maps.Keys(blocks)), func(b block) bool {
				return f.holds(b) && blocks[b]-before[b] >= 20
			}) {
				w[file] = append(w[file], f.name)
			}
		}
	}
	return w, nil
}

// A block is a sequence of statements, identified by its first and last line.
type block struct{ first, last int }

// profile runs rounds of a benchmark and returns the execution count of each block by file.
func profile(folder, room, benchmark string, rounds int) (map[string]map[block]int, error) {
	file, err := os.CreateTemp("", "house")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if err := file.Close(); err != nil {
		return nil, err
	}
	covered, err := linkedPackages(folder, room)
	if err != nil {
		return nil, err
	}
	run := exec.Command("go", "test", "-run=^$", "-bench=^"+strings.ReplaceAll(benchmark, "/", "$/^")+"$",
		fmt.Sprintf("-benchtime=%dx", rounds), "-covermode=atomic", "-coverpkg="+covered, "-coverprofile="+file.Name(), "./"+room)
	run.Dir = folder
	output, err := run.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w\n%s", benchmark, room, err, output)
	}
	if !bytes.Contains(output, []byte("ns/op")) {
		return nil, fmt.Errorf("%s has no benchmark %s", room, benchmark)
	}
	read, err := cover.ParseProfiles(file.Name())
	if err != nil {
		return nil, err
	}
	found := map[string]map[block]int{}
	for _, p := range read {
		found[p.FileName] = map[block]int{}
		for _, b := range p.Blocks {
			found[p.FileName][block{b.StartLine, b.EndLine}] += b.Count
		}
	}
	return found, nil
}

// linkedPackages returns a comma-separated list of the module's packages that a package links, except test support.
// Instrumenting other packages would only slow the build down.
func linkedPackages(folder, room string) (string, error) {
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./"+room)
	list.Dir = folder
	output, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list of %s: %w", room, err)
	}
	return strings.Join(strings.Fields(string(output)), ","), nil
}

// A declaredFunction is a function with its first and last line.
type declaredFunction struct {
	name        string
	first, last int
}

func (d declaredFunction) holds(b block) bool { return d.first <= b.first && b.last <= d.last }

// functionsOf returns the functions declared in a file of the module. file begins with the module path.
func functionsOf(folder, file string) (all []declaredFunction, err error) {
	name := filepath.Join(folder, inModule(file))
	set := token.NewFileSet()
	read, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range read.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			all = append(all, declaredFunction{functionName(f), set.Position(f.Pos()).Line, set.Position(f.End()).Line})
		}
	}
	return all, nil
}

// inModule returns the path of a file relative to the module. The module path has three elements.
func inModule(file string) string {
	parts := strings.SplitN(file, "/", 4)
	return parts[len(parts)-1]
}

// print writes the executed files and functions.
func (w executedFunctions) print(to io.Writer) {
	n, packages := 0, map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(w)) {
		n += len(w[file])
		packages[path.Dir(file)] = true
		fmt.Fprintf(to, "%4d %s: %s\n", len(w[file]), path.Clean(inModule(file)), strings.Join(w[file], " "))
	}
	fmt.Fprintf(to, "functions: %d, files: %d, packages: %d\n", n, len(w), len(packages))
}

// functionName returns the name of a function, preceded by its type if it is a method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*") + "." + f.Name.Name
}
