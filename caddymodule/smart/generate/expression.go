package main

import (
	"errors"
	"regexp"
	"strings"
)

// errNoPath says that an expression is more than a path.
var errNoPath = errors.New("the expression is more than a path")

var (
	cast       = regexp.MustCompile(`^\((\S+) as (\w+)\)`)
	parens     = regexp.MustCompile(`^\(([^()]+(?:\([^()]*\))?)\)`)
	function   = regexp.MustCompile(`^(\w+)\((.*)\)$`)
	resolvesTo = regexp.MustCompile(`^resolve\(\) is (\w+)$`)
	equals     = regexp.MustCompile(`^(\w+)='([\w-]+)'$`)
)

// branches splits an expression into the parts of its union, each without the parentheses around it and with its casts
// written as functions: "(Observation.value as CodeableConcept).text" is Observation.value.as(CodeableConcept).text.
func branches(expression string) []string {
	var parts []string
	for part := range strings.SplitSeq(expression, "|") {
		part = cast.ReplaceAllString(strings.TrimSpace(part), "$1.as($2)")
		parts = append(parts, parens.ReplaceAllString(part, "$1"))
	}
	return parts
}

// branch is a part of a union while its steps are taken: all paths that it has come to.
type branch struct {
	structures *structures
	paths      []path
}

// path is where a branch has come to: the path as the table has it, the type of its last element, and the path in the
// definitions under which the elements of that are found.
type path struct{ written, code, below string }

// paths returns the paths of one branch of an expression over a type, as the table has them.
func (s *structures) paths(expression string) ([]string, error) {
	parts := splitSteps(expression)
	b := &branch{structures: s, paths: []path{{below: parts[0]}}}
	for i := 1; i < len(parts); i++ {
		wanted := ""
		if i+1 < len(parts) {
			if f := function.FindStringSubmatch(parts[i+1]); f != nil && (f[1] == "as" || f[1] == "ofType") {
				wanted = f[2]
			}
		}
		if err := b.take(parts[i], wanted); err != nil {
			return nil, err
		}
		if wanted != "" {
			i++
		}
	}
	return b.written(), nil
}

// take takes one step: to an element, or through a filter.
func (b *branch) take(part, wanted string) error {
	if f := function.FindStringSubmatch(part); f != nil {
		return b.filter(f[1], f[2])
	}
	var next []path
	for _, p := range b.paths {
		for _, s := range b.structures.steps(p.below, part, wanted) {
			next = append(next, path{strings.TrimPrefix(p.written+"."+s.name, "."), s.code, s.path})
		}
	}
	b.paths = next
	if len(next) == 0 {
		return errNoPath
	}
	return nil
}

// filter notes a where() behind the last step, in brackets.
func (b *branch) filter(name, argument string) error {
	written := ""
	if f := resolvesTo.FindStringSubmatch(argument); f != nil {
		written = "[" + f[1] + "]"
	} else if f := equals.FindStringSubmatch(argument); f != nil {
		written = "[" + f[1] + "=" + f[2] + "]"
	}
	if name != "where" || written == "" {
		return errNoPath
	}
	for i := range b.paths {
		b.paths[i].written += written
	}
	return nil
}

// written returns the paths with the type of what is at their end.
func (b *branch) written() []string {
	var written []string
	for _, p := range b.paths {
		written = append(written, p.written+":"+p.code)
	}
	return written
}

// splitSteps splits at the dots that are not within parentheses.
func splitSteps(expression string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range expression {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '.' && depth == 0:
			parts = append(parts, expression[start:i])
			start = i + 1
		}
	}
	return append(parts, expression[start:])
}
