package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// mutant describes the removal of one check from the code.
type mutant struct {
	file     string // path relative to the root of the module
	removes  string // description of the removed check
	old, new []string

	list   string  // file that defines the mutant
	line   int     // line number in list at which the mutant begins
	suites []suite // suites that must catch the mutant; nil means the guard's suites
}

var (
	errNotFound = errors.New("the old text is not in the file: change the mutant as the check was changed, or remove it with the check")
	errSeveral  = errors.New("the old text is in the file more than once: add lines to it")
	errNothing  = errors.New("the mutant changes nothing")
)

// String returns the mutant's file and description.
func (m mutant) String() string { return m.file + ": " + m.removes }

// fail adds the mutant and its position in the list to an error.
func (m mutant) fail(err error) error { return fmt.Errorf("%s:%d: %s: %w", m.list, m.line, m, err) }

func (m mutant) folder() string { return filepath.Dir(m.file) }

// apply returns the text of the mutated file.
func (m mutant) apply(source string) (string, error) {
	before, after := strings.Join(m.old, "\n"), strings.Join(m.new, "\n")
	switch n := strings.Count(source, before); {
	case before == after:
		return "", m.fail(errNothing)
	case n == 0:
		return "", m.fail(errNotFound)
	case n > 1:
		return "", m.fail(errSeveral)
	}
	return strings.Replace(source, before, after, 1), nil
}
