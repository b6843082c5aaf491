// Command build builds ./caddy, a Caddy binary with the modules of this repository, from xcaddy.json:
//
//	go run ./caddymodule/build [-o file]
//
// It runs xcaddy in a temporary module that requires Caddy and replaces this module with its folder. The temporary module
// has no go.sum. Therefore, the modules are downloaded and verified here first, xcaddy cannot download others, and the
// hashes in the binary are compared with go.sum.
//
// The build uses xcaddy's own flags (CGO_ENABLED=0, -trimpath, -tags nobadger,nomysql,nopgx). go test and go vet share
// its build cache only with the same flags, and otherwise recompile all of Caddy.
package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"

	"github.com/caddyserver/xcaddy"
)

const modulePath = "github.com/caddy-fhir/caddy-fhir"

func main() {
	log.SetFlags(0)
	file := flag.String("o", "", "output file (default: caddy in the folder of go.mod)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := buildBinary(ctx, *file); err != nil {
		log.Fatalf("build: %v", err)
	}
}

func buildBinary(ctx context.Context, file string) error {
	root := filepath.Dir(commandOutput(ctx, "go", "env", "GOMOD"))
	extension := commandOutput(ctx, "go", "env", "GOEXE")
	file, err := filepath.Abs(cmp.Or(file, filepath.Join(root, "caddy"+extension)))
	if err != nil {
		return err
	}
	config, err1 := os.ReadFile(filepath.Join(root, "xcaddy.json"))
	sums, err2 := os.ReadFile(filepath.Join(root, "go.sum"))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("not in a clone of %s: run this command in one: %w", modulePath, err)
	}
	var builder xcaddy.Builder
	if err := json.Unmarshal(config, &builder); err != nil {
		return fmt.Errorf("reading xcaddy.json: %w", err)
	}
	builder.Replacements = replacements(root, version(ctx, root))
	log.Print("build: downloading modules, about 900 MB the first time")
	if out, err := exec.CommandContext(ctx, "go", "mod", "download").CombinedOutput(); err != nil {
		return fmt.Errorf("go mod download: %w\n%s", err, out)
	}
	goCommand := cmp.Or(os.Getenv("XCADDY_WHICH_GO"), filepath.Join(commandOutput(ctx, "go", "env", "GOROOT"), "bin", "go"))
	if err := os.Setenv("XCADDY_WHICH_GO", goCommand); err != nil { // the temporary module does not specify its Go version
		return err
	}
	builder.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off")
	var stepOutput []byte // output of the latest step; shown only on failure, because successful steps print warnings: tests of dependencies import modules that are missing
	builder.OnStep = func(e *xcaddy.StepEvent) error {
		log.Printf("build: %s", e.Step)
		text, err := io.ReadAll(e.Output)
		if e.Step != xcaddy.StepCleanup {
			stepOutput = text
		}
		return err
	}
	if err := builder.Build(ctx, file); err != nil {
		return fmt.Errorf("%w\n%s", err, stepOutput)
	}
	if err := verifyModuleSums(file, string(sums)); err != nil {
		return errors.Join(err, os.Remove(file)) // the binary failed verification and may contain other code
	}
	log.Printf("built %s", file)
	return nil
}

// version returns the version of the sources in Go's format: the tag of the commit, a pseudo-version, or "" if it is unknown.
func version(ctx context.Context, root string) string {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return "" // git would use the repository of a parent folder
	}
	return cmp.Or(
		commandOutput(ctx, "git", "-C", root, "describe", "--tags", "--exact-match", "--match", "v[0-9]*.*.*"),
		commandOutput(ctx, "git", "-C", root, "log", "-1", "--abbrev=12", "--date=format-local:%Y%m%d%H%M%S", "--format=v0.0.0-%cd-%h"),
	)
}

// replacements replaces only this version of the module with its folder, so that Go selects this version. xcaddy downloads a
// plugin unless its path begins with the path of a replacement without a version. Therefore, the parent path, which contains no
// package, is replaced too. The module's path is unsuitable: xcaddy passes replacements in random order, and a replacement
// without a version overrides the one with a version.
func replacements(root, version string) []xcaddy.Replace {
	if version == "" {
		return []xcaddy.Replace{xcaddy.NewReplace(modulePath, root)}
	}
	return []xcaddy.Replace{xcaddy.NewReplace(modulePath+"@"+version, root), xcaddy.NewReplace(path.Dir(modulePath), root)}
}

// verifyModuleSums returns an error unless the module hashes in a binary match go.sum.
func verifyModuleSums(file, sums string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	for _, m := range info.Deps {
		if m.Path != modulePath && (m.Replace != nil || !strings.Contains(sums, fmt.Sprintf("%s %s %s\n", m.Path, m.Version, m.Sum))) {
			err = errors.Join(err, fmt.Errorf("%s contains %s %s, whose checksum is not in go.sum", file, m.Path, m.Version))
		}
	}
	return err
}

// commandOutput returns the standard output of a command, or "" if the command fails.
func commandOutput(ctx context.Context, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "TZ=UTC") // pseudo-versions use UTC
	out, _ := cmd.Output()
	return strings.TrimSpace(string(out))
}
