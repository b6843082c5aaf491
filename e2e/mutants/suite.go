package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// suite contains the tests of a package.
type suite struct {
	folder string // package folder relative to the module's root
	run    string // regular expression for test names; empty for all
}

// parseSuites parses packages separated by spaces. Each may be followed by a colon and a regular expression.
func parseSuites(text string) (suites []suite) {
	for field := range strings.FieldsSeq(text) {
		folder, run, _ := strings.Cut(field, ":")
		suites = append(suites, suite{folder, run})
	}
	return suites
}

// guarded are the packages that run their tests against mutants without suites.
var guarded = []string{"./caddymodule/guard/...", "./caddymodule/internal/rawjson", "./caddymodule/authorize/scopelimit", "./caddymodule/internal/tokenclaim", "./caddymodule/smart/..."}

// guardSuites returns a suite for each package in guarded that has tests.
func guardSuites(ctx context.Context, root string) (suites []suite, err error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}`}, guarded...)...)
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		return nil, err
	}
	for at := range strings.FieldsSeq(string(output)) {
		folder, err := filepath.Rel(root, at)
		if err != nil {
			return nil, err
		}
		suites = append(suites, suite{folder: folder})
	}
	return suites, nil
}

// complete assigns the guard's suites to mutants without suites. The suite of the mutant's package comes first. It returns all
// needed suites without duplicates.
func complete(ctx context.Context, root string, chosen []trial) (needed []suite, err error) {
	var guard []suite
	for i, t := range chosen {
		if t.suites == nil {
			if guard == nil {
				if guard, err = guardSuites(ctx, root); err != nil {
					return nil, err
				}
			}
			chosen[i].suites = slices.Clone(guard)
			slices.SortStableFunc(chosen[i].suites, func(a, b suite) int { return t.distance(a) - t.distance(b) })
		}
		for _, s := range chosen[i].suites {
			if !slices.Contains(needed, s) {
				needed = append(needed, s)
			}
		}
	}
	return needed, nil
}

// distance returns 0 for the suite of the mutant's package, otherwise 1.
func (m mutant) distance(s suite) int {
	if s.folder == m.folder() {
		return 0
	}
	return 1
}
