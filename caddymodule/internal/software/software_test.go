package software

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestVersionIn(t *testing.T) {
	t.Parallel()
	module := func(path, version string) debug.Module { return debug.Module{Path: path, Version: version} }
	replaced, unknown := module(modulePath, "v1.2.3"), module(modulePath, "v0.0.0-00010101000000-000000000000")
	replaced.Replace, unknown.Replace = &debug.Module{Path: "."}, &debug.Module{Path: "."}
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"nothing known", nil, "devel"},
		{"a dependency", &debug.BuildInfo{Main: module("caddy", "v2.0.0"), Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3"}}}, "v1.2.3"},
		{"the main module", &debug.BuildInfo{Main: module(modulePath, "v1.2.3")}, "v1.2.3"},
		{"a folder in its place, of a known version", &debug.BuildInfo{Main: replaced}, "v1.2.3"},
		{"a folder in its place, of no version", &debug.BuildInfo{Main: unknown}, "devel"},
		{"a working tree", &debug.BuildInfo{Main: module(modulePath, "(devel)")}, "devel"},
		{"no version", &debug.BuildInfo{Main: module(modulePath, "")}, "devel"},
		{"another module", &debug.BuildInfo{Main: module("caddy", "v2.0.0")}, "devel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := moduleVersion(tt.info); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// `caddy version` prints the versions of caddy-fhir and Caddy.
func TestCaddyVersionShowsModule(t *testing.T) {
	t.Parallel()
	version, _ := Version()
	if _, full := caddy.Version(); !strings.HasPrefix(full, "caddy-fhir "+version+", Caddy") {
		t.Errorf("%q", full)
	}
}
