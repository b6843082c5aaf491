package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/e2e/feature"
)

// goPackage is the output of go list for one package.
type goPackage struct {
	Dir, ImportPath                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Deps                               []string
	Module                             struct{ Path string }
}

// linked lists the Caddy modules for which linked lines are counted.
var linked = []struct{ module, folder string }{
	{"fhir_outcome", "caddymodule/modules/outcome"}, {"fhir_bearer", "caddymodule/modules/bearer"},
	{"fhir_expand", "caddymodule/modules/expand"}, {"fhir_authorize", "caddymodule/modules/authorization"},
}

// sizeFigures returns the figures for lines and features.
func sizeFigures(folder string) ([]figure, error) {
	packages, err := listPackages(folder)
	if err != nil {
		return nil, err
	}
	lines, code, tests := map[string]int{}, 0, 0
	for _, p := range packages {
		n, err1 := countLines(p.Dir, p.GoFiles)
		t, err2 := countLines(p.Dir, append(p.TestGoFiles, p.XTestGoFiles...))
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		lines[p.ImportPath] = n
		switch tests += t; {
		case strings.Contains(p.ImportPath+"/", "test/"):
			tests += n
		case path.Base(p.ImportPath) != "generate":
			code += n
		}
	}
	var figures []figure
	for _, l := range linked {
		if p, ok := packages[l.folder]; ok {
			n := lines[p.ImportPath]
			for _, dep := range p.Deps {
				n += lines[dep]
			}
			figures = append(figures, figure{"lines linked by " + l.module, n, l.folder})
		}
	}
	features, err := feature.Find(folder, packages["caddymodule"].Module.Path)
	return append(figures, figure{name: "features", value: len(features)}, figure{name: "lines of Go", value: code, where: "without tests, test support, generators, e2e"},
		figure{name: "lines of tests", value: tests, where: "with test support, without e2e"}), err
}

// listPackages returns the packages of the module by folder.
func listPackages(folder string) (map[string]goPackage, error) {
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Deps,Module", "./...")
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", folder, err)
	}
	packages := map[string]goPackage{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages[strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")] = p
	}
}

func countLines(folder string, files []string) (n int, err error) {
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			return 0, err
		}
		n += bytes.Count(text, []byte("\n"))
	}
	return n, nil
}
