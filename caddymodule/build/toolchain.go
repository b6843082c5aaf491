package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// toolchain is the output of go env for the module around the working directory.
type toolchain struct {
	// Module is the path of its go.mod.
	Module string `json:"GOMOD"`
	// Root is the folder of the Go that its go.mod selects.
	Root string `json:"GOROOT"`
}

func findToolchain(ctx context.Context) (*toolchain, error) {
	t := new(toolchain)
	if err := goJSON(ctx, "", t, "env", "-json", "GOMOD", "GOROOT"); err != nil {
		return nil, err
	}
	if t.Module == "" || t.Module == os.DevNull {
		return nil, errors.New("not inside a Go module")
	}
	return t, nil
}

// offline is the environment for xcaddy's go commands, in which they fetch neither modules nor another Go. It names the Go
// that go.mod selected, since the temporary module does not say which it needs.
func (t *toolchain) offline(environ []string) ([]string, error) {
	if os.Getenv("XCADDY_WHICH_GO") == "" {
		if err := os.Setenv("XCADDY_WHICH_GO", filepath.Join(t.Root, "bin", "go")); err != nil {
			return nil, err
		}
	}
	environ = slices.Clone(environ)
	for _, setting := range []string{
		"GOPROXY=off",       // only the module cache, which download has filled
		"GOSUMDB=off",       // the database cannot be reached, and go.sum was checked
		"GOTOOLCHAIN=local", // no other Go
		"GOWORK=off",        // no workspace around the temporary folder
	} {
		name, _, _ := strings.Cut(setting, "=")
		environ = slices.DeleteFunc(environ, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		environ = append(environ, setting)
	}
	return environ, nil
}

// verbose adds -v to the GOFLAGS, so that go build names the packages that it compiles. The last value of a variable counts.
func verbose(environ []string) []string {
	flags := ""
	for _, variable := range environ {
		if value, ok := strings.CutPrefix(variable, "GOFLAGS="); ok {
			flags = value + " "
		}
	}
	return append(slices.Clone(environ), "GOFLAGS="+flags+"-v")
}

// download fetches the modules of go.mod into the module cache, and checks them against go.sum.
func download(ctx context.Context, root string) error {
	_, err := goCommand(ctx, root, "mod", "download")
	return err
}

// goJSON runs go in a folder and decodes its output.
func goJSON(ctx context.Context, dir string, to any, args ...string) error {
	out, err := goCommand(ctx, dir, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, to); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// goCommand runs go in a folder and returns its output.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
