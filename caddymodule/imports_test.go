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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	module    = "github.com/caddy-fhir/caddy-fhir/"
	caddyHost = "github.com/caddyserver/"
	roomsFile = "testdata/rooms.txt"
)

// cores are the folders whose packages know nothing of Caddy, and which packages
// of ours outside its folder each may import.
var cores = map[string][]string{
	"terminology":                           ground,
	"caddymodule/authorize":                 slices.Concat(ground, shared, []string{"caddymodule/internal/josetest", "caddymodule/gctest"}), // its support of tests
	"caddymodule/guard":                     append(ground, "caddymodule/internal/sample"),                                                  // its support of tests
	"caddymodule/internal/sample":           ground,
	"caddymodule/smart":                     {"caddymodule/internal/rawjson"},
	"caddymodule/boundedcache":              nil,
	"caddymodule/guard/internal/fairmemory": nil,
	"caddymodule/internal/fairqueue":        nil,
	"caddymodule/httporigin":                nil,
	"caddymodule/internal/strictjson":       nil,
	"caddymodule/internal/subject":          nil,
	"caddymodule/internal/tokenclaim":       nil,
	"caddymodule/internal/rawjson":          nil,
	"caddymodule/internal/oauth2":           nil,
	"caddymodule/internal/totp":             nil,
	"caddymodule/internal/crossorigin":      {"caddymodule/httporigin"},
	"caddymodule/internal/upstream":         ground,
	"caddymodule/internal/brands":           {"caddymodule/internal/rawjson", "caddymodule/smart"},
	"caddymodule/internal/breaker":          {"caddymodule/authorize/store"},
	"caddymodule/internal/replica":          {"caddymodule/authorize/store", "caddymodule/boundedcache"},
	"caddymodule/internal/storecopy":        {"caddymodule/authorize/store"},
}

// shared is what the authorization server has in common with the packages that know Caddy.
var shared = []string{"caddymodule/internal/brands", "caddymodule/internal/crossorigin", "caddymodule/internal/oauth2", "caddymodule/internal/totp", "caddymodule/internal/upstream"}

// ground is what all cores may import.
var ground = []string{
	"caddymodule/smart", "caddymodule/smart/compartment", "caddymodule/smart/interaction", "caddymodule/smart/resource",
	"caddymodule/smart/searchparam", "caddymodule/smart/relationship", "caddymodule/boundedcache", "caddymodule/guard/internal/fairmemory", "caddymodule/internal/fairqueue", "caddymodule/internal/persistent",
	"caddymodule/httporigin", "caddymodule/internal/strictjson", "caddymodule/internal/subject", "caddymodule/internal/tokenclaim", "caddymodule/internal/rawjson",
}

// A goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string // directly
	Deps       []string // directly or not
}

// A room is a package of this module, and what it may import.
type room struct {
	name    string
	imports []string
}

// TestImports keeps the cores free of Caddy and apart from each other, whatever
// testdata/rooms.txt says.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
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

// TestRooms compares what each package imports with testdata/rooms.txt, where a
// package imports only what stands below it.
func TestRooms(t *testing.T) {
	t.Parallel()
	rooms := readRooms(t)
	for i, r := range rooms {
		for _, imported := range r.imports {
			below := func(b room) bool { return b.name == imported }
			if imported != "caddy" && !slices.ContainsFunc(rooms[i+1:], below) {
				t.Errorf("%s: %s imports %s, which does not stand below it", roomsFile, r.name, imported)
			}
		}
	}
	for _, p := range listPackages(t) {
		if !within(p.ImportPath, "caddymodule") && !within(p.ImportPath, "terminology") {
			t.Errorf("%s is in neither caddymodule nor terminology", p.ImportPath)
		}
		i := slices.IndexFunc(rooms, func(r room) bool { return r.name == p.ImportPath })
		if i < 0 {
			t.Errorf("%s is not in %s: add it there", p.ImportPath, roomsFile)
			continue
		}
		compareImports(t, rooms[i], p)
		rooms = slices.Delete(rooms, i, i+1)
	}
	for _, r := range rooms {
		t.Errorf("%s: there is no package %s", roomsFile, r.name)
	}
}

// compareImports compares what a package imports with what it may import.
func compareImports(t *testing.T, r room, p goPackage) {
	t.Helper()
	imports := ourImports(p)
	for _, imported := range imports {
		if !slices.Contains(r.imports, imported) {
			t.Errorf("%s imports %s, against %s", r.name, imported, roomsFile)
		}
	}
	for _, allowed := range r.imports {
		if !slices.Contains(imports, allowed) {
			t.Errorf("%s: %s no longer imports %s", roomsFile, r.name, allowed)
		}
	}
}

// ourImports are the packages of this module that a package imports, and "caddy"
// where it imports Caddy.
func ourImports(p goPackage) (imports []string) {
	for _, path := range p.Imports {
		switch {
		case isOurs(path):
			imports = append(imports, path)
		case strings.HasPrefix(path, caddyHost) && !slices.Contains(imports, "caddy"):
			imports = append(imports, "caddy")
		}
	}
	return imports
}

// readRooms reads testdata/rooms.txt.
func readRooms(t *testing.T) (rooms []room) {
	t.Helper()
	text := gatewaytest.ReadFile(t, roomsFile)
	for line := range strings.Lines(text) {
		switch name := strings.TrimSpace(line); {
		case name == "" || strings.HasPrefix(name, "#"):
		case strings.HasPrefix(line, "\t"):
			last := &rooms[len(rooms)-1]
			last.imports = append(last.imports, name)
		default:
			rooms = append(rooms, room{name: name})
		}
	}
	return rooms
}

// mayImport says whether the packages in the folder of core may import dep.
func mayImport(core string, allowed []string, dep string) bool {
	if strings.HasPrefix(dep, caddyHost) {
		return false
	}
	return !isOurs(dep) || within(dep, core) || slices.Contains(allowed, dep)
}

// isOurs says whether a package is of this module.
func isOurs(path string) bool {
	return within(path, "caddymodule") || within(path, "terminology")
}

// within says whether a package is folder, or lies in it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// listPackages asks go list for this module's packages and all that they import, and
// leaves the module's name out of the paths. With -e: a package that does not compile
// is a matter of its own tests.
func listPackages(t *testing.T) (packages []goPackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps", "../...")
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
