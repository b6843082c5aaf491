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

// cores are the folders that reach neither Caddy nor each other, and the folders that each may reach, directly or not.
var cores = map[string][]string{
	"terminology":           append(helpers, "caddymodule/smart"),
	"caddymodule/authorize": append(helpers, "caddymodule/smart"),
	"caddymodule/guard":     append(helpers, "caddymodule/smart"),
	"caddymodule/smart":     helpers,
}

// helpers are shared by cores, as long as they reach nothing that the core may not.
var helpers = slices.Clip([]string{"caddymodule/internal", "caddymodule/boundedcache", "caddymodule/httporigin", "caddymodule/gctest"})

// featureFolders have a folder for each feature, which can be deleted with its import line in a standard build. So nothing
// else imports a feature, but its own packages and tests. Below terminology and codesystem, features are what a standard build imports.
var featureFolders = []string{"caddymodule/features/", "terminology/operation/", "terminology/codesystem/", "terminology/"}

// isStandardBuild reports whether a package is a list of features.
func isStandardBuild(name string) bool { return name == "caddymodule" || path.Base(name) == "standard" }

// A goPackage is what go list says of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string // directly
	Deps                               []string // directly or not, without tests
}

// TestImports checks the rules above.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for _, fault := range append(coreFaults(packages), featureFaults(packages)...) {
		t.Error(fault)
	}
	for core := range cores {
		if !slices.ContainsFunc(packages, func(p goPackage) bool { return within(p.ImportPath, core) }) {
			t.Errorf("no package in %s", core)
		}
	}
}

// TestBrokenRules breaks each rule.
func TestBrokenRules(t *testing.T) {
	t.Parallel()
	packages := []goPackage{
		{ImportPath: "caddymodule", Imports: []string{"caddymodule/features/a", "terminology/standard"}},
		{ImportPath: "terminology/standard", Imports: []string{"terminology/codesystem/b", "terminology/e"}},
		{ImportPath: "caddymodule/features/a", Imports: []string{"caddymodule/features/a/internal/page", "caddymodule/authorize"}},
		{ImportPath: "caddymodule/features/a/internal/page", XTestImports: []string{"caddymodule/features/a"}},
		{ImportPath: "caddymodule/guard", Deps: []string{"caddymodule/internal/x", "caddymodule/smart/y", "net/http"}},
		{ImportPath: "terminology/codesystem/internal/packed", Imports: []string{"terminology/codesystem/unregistered"}},
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

// coreFaults names what the packages of cores reach and must not.
func coreFaults(packages []goPackage) (faults []error) {
	for core, allowed := range cores {
		for _, p := range packages {
			for _, dep := range p.Deps {
				if within(p.ImportPath, core) && !mayReach(core, allowed, dep) {
					faults = append(faults, fmt.Errorf("%s reaches %s, which %s must not", p.ImportPath, dep, core))
				}
			}
		}
	}
	return faults
}

func mayReach(core string, allowed []string, dep string) bool {
	isIn := func(folder string) bool { return within(dep, folder) }
	return !strings.HasPrefix(dep, caddyHost) && (!isOurs(dep) || isIn(core) || slices.ContainsFunc(allowed, isIn))
}

// featureFaults names what imports a feature and must not.
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
			if feature := featureOf(imported, registered); feature != "" && !within(p.ImportPath, feature) {
				faults = append(faults, fmt.Errorf("%s imports %s: only a standard build may import a feature", p.ImportPath, imported))
			}
		}
	}
	return faults
}

// featureOf returns the folder of the feature that a package belongs to; "" if it belongs to none.
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

// needsRegistration reports whether a folder has both features and core packages, so that only packages that a standard build
// imports are features.
func needsRegistration(folder string) bool {
	return folder == "terminology/codesystem/" || folder == "terminology/"
}

// isOurs reports whether a package is of this module.
func isOurs(path string) bool {
	return within(path, "caddymodule") || within(path, "terminology")
}

// within reports whether a package is folder, or lies in it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// listPackages asks go list for this module's packages and all that they import, and
// leaves the module's name out of the paths. With -e: a package that does not compile
// is a matter of its own tests.
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
