package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/feature"
)

// check contains the commands that must succeed after a feature has been deleted.
type check struct {
	vetOnly bool
	tests   string // packages, separated by spaces
}

// run deletes each feature separately and prints a line for each. It returns the number of features that can't be deleted.
func (c *check) run(ctx context.Context, root string, features []feature.Feature) (failed int, err error) {
	for _, f := range features {
		began := time.Now()
		output, err := c.without(ctx, root, &f)
		result := "passed"
		if _, isExit := errors.AsType[*exec.ExitError](err); isExit && ctx.Err() == nil {
			result = "FAILED"
			failed++
		} else if err != nil {
			return failed, fmt.Errorf("%s: %w", f.Folder, err)
		}
		fmt.Printf("%s %s %.0fs\n", result, f.Folder, time.Since(began).Seconds())
		if result != "passed" {
			fmt.Printf("%s", output)
		}
	}
	return failed, nil
}

// without runs the commands in a copy of the repository without a feature. It returns the output of a failed command.
func (c *check) without(ctx context.Context, root string, f *feature.Feature) (output []byte, err error) {
	folder, err := os.MkdirTemp("", "deletable-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := copyTracked(ctx, root, folder); err != nil {
		return nil, err
	}
	if err := f.DeleteFrom(folder); err != nil {
		return nil, err
	}
	for _, command := range []string{"build", "vet"} {
		if output, err = goCommand(ctx, folder, command, "./..."); err != nil {
			return failures(output), err
		}
	}
	if c.vetOnly {
		return nil, nil
	}
	output, err = goCommand(ctx, folder, "list", strings.Fields(c.tests)...)
	if err != nil {
		return output, err
	}
	packages := slices.DeleteFunc(strings.Fields(string(output)), testsStandardBuild)
	output, err = goCommand(ctx, folder, "test", packages...)
	return failures(output), err
}

// testsStandardBuild reports whether a package tests the complete standard build: documentation that describes every feature,
// or ports of conformance suites that need several features.
func testsStandardBuild(name string) bool {
	return strings.HasSuffix(name, "/caddymodule/documents") || strings.HasSuffix(name, "/caddymodule/conformance")
}

func goCommand(ctx context.Context, folder, name string, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", append([]string{name}, arguments...)...)
	command.Dir = folder
	return command.CombinedOutput()
}

// failures returns the output of go test without the lines for packages that pass.
func failures(output []byte) []byte {
	var relevant []byte
	for line := range bytes.Lines(output) {
		if !bytes.HasPrefix(line, []byte("ok ")) && !bytes.Contains(line, []byte("[no test files]")) {
			relevant = append(relevant, line...)
		}
	}
	return relevant
}

// copyTracked copies the files tracked by Git from the working tree.
func copyTracked(ctx context.Context, root, folder string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file and creates its parent folders. Files deleted from the working tree are skipped.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.IsDir() { // a tracked folder is a submodule
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}
