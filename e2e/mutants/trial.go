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

// guarded are the packages whose tests must catch mutants.
var guarded = []string{"./caddymodule/guard/...", "./caddymodule/internal/rawjson", "./caddymodule/authorize/internal/scopelimit", "./caddymodule/internal/tokenclaim", "./caddymodule/smart/..."}

// patience is how long the tests of a package may take, for go test. A mutant that never ends is caught by it.
const patience = "120s"

// binary is the test binary of a package.
type binary struct{ folder, file string }

// build builds the test binaries of the packages, with the mutants in them. Vet is left out, for what it finds in
// mutants is no failing test.
func build(ctx context.Context, root, folder, overlay string) ([]binary, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}`}, guarded...)...)
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		return nil, err
	}
	var all []binary
	for at := range strings.FieldsSeq(string(output)) {
		of, err := filepath.Rel(root, at)
		if err != nil {
			return nil, err
		}
		b := binary{of, filepath.Join(folder, strings.ReplaceAll(of, string(filepath.Separator), "-")+".test")}
		command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", b.file, "./"+of)
		command.Dir = root
		if output, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("a mutant of %s, or of what it uses, does not compile: %w\n%s", of, err, output)
		}
		all = append(all, b)
	}
	return all, nil
}

// passes reports whether the tests pass under a mutant; 0 is none.
func (b binary) passes(ctx context.Context, root string, mutant int) (bool, error) {
	command := exec.CommandContext(ctx, b.file, "-test.failfast", "-test.timeout="+patience)
	command.Dir = filepath.Join(root, b.folder)
	command.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(mutant))
	err := command.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// isCaught reports whether some test fails under a mutant.
func isCaught(ctx context.Context, root string, all []binary, m mutant, number int) (bool, error) {
	for _, own := range []bool{true, false} {
		for _, b := range all {
			if (b.folder == m.folder()) != own {
				continue
			}
			if ok, err := b.passes(ctx, root, number); !ok || err != nil {
				return err == nil, err
			}
		}
	}
	return false, nil
}
