package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// pins are the modules that go.mod and go.sum allow.
type pins struct {
	module   string            // the path of this module
	version  string            // of this module, as the binary must contain it; empty if unknown
	versions map[string]string // of the required modules, by path
	sums     map[string]bool   // the lines of go.sum: "path version h1:hash"
}

// checkBinary checks that this module has its version in the binary, and each other one the version of go.mod and the
// hash of go.sum. xcaddy's temporary module selects the versions again; since go.mod lists them all, it should select the
// same ones.
func (p *pins) checkBinary(file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	if err := p.check(info.Deps); err != nil {
		return fmt.Errorf("%s is not what go.mod and go.sum say: %w", file, err)
	}
	return nil
}

func readPins(ctx context.Context, root string) (*pins, error) {
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
	}
	if err := goJSON(ctx, root, &mod, "mod", "edit", "-json"); err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, err
	}
	p := &pins{module: mod.Module.Path, versions: make(map[string]string), sums: make(map[string]bool)}
	for _, r := range mod.Require {
		p.versions[r.Path] = r.Version
	}
	for line := range bytes.Lines(sum) {
		p.sums[strings.TrimSpace(string(line))] = true
	}
	return p, nil
}

// check compares the modules in a binary with the pins. The error names all that differ.
func (p *pins) check(modules []*debug.Module) error {
	var errs []error
	own := false
	for _, m := range modules {
		switch version, ok := p.versions[m.Path]; {
		case m.Path == p.module && p.version != "" && m.Version != p.version:
			own = true
			errs = append(errs, fmt.Errorf("%s has %s, git says %s", m.Path, m.Version, p.version))
		case m.Path == p.module:
			own = true
		case m.Replace != nil:
			errs = append(errs, fmt.Errorf("%s is replaced by %s", m.Path, m.Replace.Path))
		case !ok:
			errs = append(errs, fmt.Errorf("%s %s is not in go.mod", m.Path, m.Version))
		case version != m.Version:
			errs = append(errs, fmt.Errorf("%s has %s, go.mod says %s", m.Path, m.Version, version))
		case !p.sums[m.Path+" "+m.Version+" "+m.Sum]:
			errs = append(errs, fmt.Errorf("%s %s %s is not in go.sum", m.Path, m.Version, m.Sum))
		}
	}
	if !own {
		errs = append(errs, fmt.Errorf("%s is not in the binary", p.module))
	}
	return errors.Join(errs...)
}
