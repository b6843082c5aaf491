package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	module    = "github.com/caddy-fhir/caddy-fhir/"
	caddyHost = "github.com/caddyserver/"
)

// cores maps each folder that must not import Caddy or other cores to the folders that it may import, even indirectly.
var cores = map[string][]string{
	"terminology":           append(helpers, "caddymodule/smart"),
	"caddymodule/authorize": append(helpers, "caddymodule/smart"),
	"caddymodule/guard":     append(helpers, "caddymodule/smart"),
	"caddymodule/smart":     helpers,
}

// helpers are folders that cores may import, provided that the helpers import nothing that the core must not import.
var helpers = slices.Clip([]string{"caddymodule/internal", "caddymodule/boundedcache", "caddymodule/httporigin", "caddymodule/gctest"})

// featureFolders contain a folder for each feature. A feature can be deleted together with its import line in a standard build.
// Therefore, only its own packages and tests may import it. In terminology and codesystem, only packages that a standard build
// imports are features.
var featureFolders = []string{"caddymodule/features/", "terminology/operation/", "terminology/codesystem/", "terminology/"}

// isStandardBuild reports whether a package imports the features of a standard build.
func isStandardBuild(name string) bool { return name == "caddymodule" || path.Base(name) == "standard" }

// A goPackage is a package in the output of go list.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string // direct imports
	Deps                               []string // direct and indirect imports, except those of tests
}

// TestImports checks the rules for cores and featureFolders.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for _, fault := range append(coreFaults(packages), featureFaults(packages)...) {
		t.Error(fault)
	}
	for core := range cores {
		if !slices.ContainsFunc(packages, func(p goPackage) bool { return isWithin(p.ImportPath, core) }) {
			t.Errorf("no package in %s", core)
		}
	}
}

// TestBrokenRules checks that a violation of each rule is detected.
func TestBrokenRules(t *testing.T) {
	t.Parallel()
	packages := []goPackage{
		{ImportPath: "caddymodule", Imports: []string{"caddymodule/features/a", "terminology/standard"}},
		{ImportPath: "terminology/standard", Imports: []string{"terminology/codesystem/b", "terminology/e"}},
		{ImportPath: "caddymodule/features/a", Imports: []string{"caddymodule/features/a/internal/page", "caddymodule/authorize"}},
		{ImportPath: "caddymodule/features/a/internal/page", XTestImports: []string{"caddymodule/features/a"}},
		{ImportPath: "caddymodule/guard", Deps: []string{"caddymodule/internal/x", "caddymodule/smart/y", "net/http"}},
		{ImportPath: "terminology/codesystem/internal/embeddedtable", Imports: []string{"terminology/codesystem/unregistered"}},
	}
	for name, broken := range map[string]goPackage{
		"":                                   {ImportPath: "caddymodule/fhirapp", Imports: []string{"caddymodule/guard", caddyHost + "caddy/v2"}},
		"a core reaches Caddy":               {ImportPath: "terminology/api", Deps: []string{caddyHost + "caddy/v2"}},
		"a core reaches another":             {ImportPath: "caddymodule/guard/internal/access", Deps: []string{"caddymodule/authorize/store"}},
		"smart reaches a core":               {ImportPath: "caddymodule/smart/x", Deps: []string{"caddymodule/guard"}},
		"a core reaches a Caddy module":      {ImportPath: "caddymodule/authorize/x", Deps: []string{"caddymodule/modules/expand"}},
		"the core imports a feature":         {ImportPath: "caddymodule/fhirapp", Imports: []string{"caddymodule/features/a"}},
		"a test of the core does":            {ImportPath: "caddymodule/fhirapp", TestImports: []string{"caddymodule/features/a"}},
		"a feature imports another":          {ImportPath: "caddymodule/features/c", Imports: []string{"caddymodule/features/a"}},
		"a code system is imported by name":  {ImportPath: "terminology/api", XTestImports: []string{"terminology/codesystem/b"}},
		"a format is imported by a core":     {ImportPath: "terminology/api", Imports: []string{"terminology/e"}},
		"an operation is imported by a core": {ImportPath: "terminology", Imports: []string{"terminology/operation/d"}},
	} {
		all := append(slices.Clip(packages), broken)
		if faults := append(coreFaults(all), featureFaults(all)...); (len(faults) == 1) != (name != "") || len(faults) > 1 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// coreFaults returns an error for each forbidden import of a core package.
func coreFaults(packages []goPackage) (faults []error) {
	for core, allowed := range cores {
		for _, p := range packages {
			for _, dep := range p.Deps {
				if isWithin(p.ImportPath, core) && !mayReach(core, allowed, dep) {
					faults = append(faults, fmt.Errorf("%s reaches %s, which %s must not", p.ImportPath, dep, core))
				}
			}
		}
	}
	return faults
}

func mayReach(core string, allowed []string, dep string) bool {
	isIn := func(folder string) bool { return isWithin(dep, folder) }
	return !strings.HasPrefix(dep, caddyHost) && (!isInModule(dep) || isIn(core) || slices.ContainsFunc(allowed, isIn))
}

// featureFaults returns an error for each forbidden import of a feature.
func featureFaults(packages []goPackage) (faults []error) {
	var registered []string
	for _, p := range packages {
		if isStandardBuild(p.ImportPath) {
			registered = append(registered, p.Imports...)
		}
	}
	for _, p := range packages {
		if isStandardBuild(p.ImportPath) {
			continue
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if feature := featureOf(imported, registered); feature != "" && !isWithin(p.ImportPath, feature) {
				faults = append(faults, fmt.Errorf("%s imports %s: only a standard build may import a feature", p.ImportPath, imported))
			}
		}
	}
	return faults
}

// featureOf returns the folder of the feature that contains a package, or "" if the package is not part of a feature.
func featureOf(name string, registered []string) string {
	for _, folder := range featureFolders {
		if below, ok := strings.CutPrefix(name, folder); ok {
			first, _, _ := strings.Cut(below, "/")
			if feature := folder + first; !needsRegistration(folder) || slices.Contains(registered, feature) && !isStandardBuild(feature) {
				return feature
			}
		}
	}
	return ""
}

// needsRegistration reports whether a folder contains both features and core packages, so only packages imported by a
// standard build are features.
func needsRegistration(folder string) bool {
	return folder == "terminology/codesystem/" || folder == "terminology/"
}

// isInModule reports whether a package belongs to this module.
func isInModule(path string) bool {
	return isWithin(path, "caddymodule") || isWithin(path, "terminology")
}

// isWithin reports whether a package is in folder or below it.
func isWithin(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// listPackages returns this module's packages and their dependencies from go list. The paths do not contain the module's name.
// The flag -e includes packages that do not compile, because their own tests report them.
func listPackages(t *testing.T) (packages []goPackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "../...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	decoder := json.NewDecoder(strings.NewReader(strings.ReplaceAll(string(out), `"`+module, `"`)))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
