package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/caddy-fhir/caddy-fhir/"

// cores are the packages that know nothing of Caddy, and which other packages
// of this module each may import.
var cores = map[string][]string{
	module + "terminology":            ground,
	module + "caddymodule/authorize":  ground,
	module + "caddymodule/guard":      ground,
	module + "caddymodule/smart":      nil,
	module + "caddymodule/fairqueue":  nil,
	module + "caddymodule/strictjson": nil,
}

// ground is what all cores may stand on.
var ground = []string{module + "caddymodule/smart", module + "caddymodule/fairqueue", module + "caddymodule/strictjson"}

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Deps       []string
}

// TestImports keeps the cores apart: whatever they import, directly or not, is
// neither Caddy nor, but for those on the ground, one of ours outside of their own folder.
func TestImports(t *testing.T) {
	packages := listPackages(t, "../terminology/...", "./authorize/...", "./guard/...", "./smart/...", "./fairqueue/...", "./strictjson/...")
	for core, allowed := range cores {
		found := false
		for _, p := range packages {
			if !within(p.ImportPath, core) {
				continue
			}
			found = true
			for _, dep := range p.Deps {
				if !mayImport(core, allowed, dep) {
					t.Errorf("%s imports %s", p.ImportPath, dep)
				}
			}
		}
		if !found {
			t.Errorf("no package %s", core)
		}
	}
}

// groundFloors are rooms on which the others of a core stand, and what of ours each may import beside what lies
// in it.
var groundFloors = map[string]map[string][]string{
	module + "caddymodule/": {
		"authorize/audit":    {"authorize/oauth2", "fairqueue"},
		"authorize/keyring":  {"authorize/oauth2"},
		"authorize/oauth2":   nil,
		"authorize/store":    nil,
		"authorize/totp":     nil,
		"authorize/upstream": {"strictjson"},
	},
	module + "terminology/": {
		"bitset":   nil,
		"fhirjson": nil,
		"fhirxml":  nil,
		"offheap":  nil,
	},
}

// TestGroundFloor keeps the rooms below a core from importing what stands on them.
func TestGroundFloor(t *testing.T) {
	for core, rooms := range groundFloors {
		for room, allowed := range rooms {
			packages := listPackages(t, core+room+"/...")
			if len(packages) == 0 {
				t.Errorf("no package %s", room)
			}
			for _, p := range packages {
				for _, dep := range p.Deps {
					ours := strings.HasPrefix(dep, module) && !within(dep, core+room)
					if ours && !slices.Contains(allowed, strings.TrimPrefix(dep, core)) {
						t.Errorf("%s imports %s", p.ImportPath, dep)
					}
				}
			}
		}
	}
}

// mayImport says whether the packages in the folder of core may import dep.
func mayImport(core string, allowed []string, dep string) bool {
	if strings.HasPrefix(dep, "github.com/caddyserver/") {
		return false
	}
	return !strings.HasPrefix(dep, module) || within(dep, core) || slices.Contains(allowed, dep)
}

// within says whether a package is folder, or lies in it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// listPackages asks go list for packages and all that they import. With -e: a
// package that does not compile is a matter of its own tests.
func listPackages(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Deps"}, patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []goPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
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
