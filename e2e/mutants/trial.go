package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// patience is the time limit for the tests of a package. A mutant that causes an infinite loop is caught by this limit.
const patience = "120s"

// binaries are the test binaries of packages by folder.
type binaries struct {
	root  string
	files map[string]string
}

// build builds the test binaries of the suites with all mutants compiled in. It omits vet, because a vet finding in a mutant is
// not a failing test.
func build(ctx context.Context, root, folder, overlay string, needed []suite) (binaries, error) {
	all := binaries{root, map[string]string{}}
	for _, s := range needed {
		if all.files[s.folder] != "" {
			continue
		}
		file := filepath.Join(folder, strings.ReplaceAll(s.folder, string(filepath.Separator), "-")+".test")
		command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", file, "./"+s.folder)
		command.Dir = root
		if output, err := command.CombinedOutput(); err != nil {
			return all, fmt.Errorf("a mutant of %s, or of a package that it imports, does not compile: %w\n%s", s.folder, err, output)
		}
		all.files[s.folder] = file
	}
	return all, nil
}

// passes reports whether a suite's tests pass while the mutant with the given number is active; 0 is the original code.
func (b binaries) passes(ctx context.Context, s suite, mutant int) (bool, error) {
	command := exec.CommandContext(ctx, b.files[s.folder], "-test.failfast", "-test.timeout="+patience, "-test.run="+s.run)
	command.Dir = filepath.Join(b.root, s.folder)
	command.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(mutant))
	err := command.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// catches reports whether at least one test fails with a mutant.
func (b binaries) catches(ctx context.Context, t trial) (bool, error) {
	for _, s := range t.suites {
		if ok, err := b.passes(ctx, s, t.number); !ok || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}
