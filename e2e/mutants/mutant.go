package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// mutant is the code without one of its checks.
type mutant struct {
	file     string // from the root of the module
	removes  string // which check is missing
	old, new []string
}

var (
	errNotFound = errors.New("the old text is not in the file")
	errSeveral  = errors.New("the old text is in the file more than once")
	errNothing  = errors.New("it changes nothing")
)

// String names the mutant.
func (m mutant) String() string { return m.file + ": " + m.removes }

// folder is that of its package.
func (m mutant) folder() string { return filepath.Dir(m.file) }

// apply makes the mutated file of the true one.
func (m mutant) apply(source string) (string, error) {
	before, after := strings.Join(m.old, "\n"), strings.Join(m.new, "\n")
	switch n := strings.Count(source, before); {
	case before == after:
		return "", fmt.Errorf("%s: %w", m, errNothing)
	case n == 0:
		return "", fmt.Errorf("%s: %w", m, errNotFound)
	case n > 1:
		return "", fmt.Errorf("%s: %w", m, errSeveral)
	}
	return strings.Replace(source, before, after, 1), nil
}
