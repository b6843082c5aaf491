package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
)

// function is the position of a function in a file.
type function struct {
	start, body, end int
	hasResults       bool
}

func (f function) signature(source string) string { return source[f.start:f.body] }

func (f function) block(source string) string { return source[f.body:f.end] }

var errNoFunction = errors.New("the mutant changes something else than the body of one function")

func functions(source string) ([]function, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) int { return files.Position(p).Offset }
	var all []function
	for _, declared := range file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Body != nil {
			all = append(all, function{at(f.Pos()), at(f.Body.Lbrace), at(f.End()), f.Type.Results != nil})
		}
	}
	return all, nil
}

// changed returns the position of the function that the mutant changes in the original file, and the function's new body.
func (m mutant) changed(source string) (f function, body string, err error) {
	mutated, err := m.apply(source)
	if err != nil {
		return f, "", err
	}
	before, err := functions(source)
	if err != nil {
		return f, "", fmt.Errorf("%s: %w", m.file, err)
	}
	after, err := functions(mutated)
	if err != nil {
		return f, "", m.fail(err)
	}
	if len(before) != len(after) {
		return f, "", m.fail(errNoFunction)
	}
	found := 0
	for i := range before {
		if before[i].signature(source) != after[i].signature(mutated) {
			return f, "", m.fail(errNoFunction)
		}
		if before[i].block(source) != after[i].block(mutated) {
			f, body = before[i], after[i].block(mutated)
			found++
		}
	}
	if found != 1 {
		return f, "", m.fail(errNoFunction)
	}
	return f, body, nil
}
