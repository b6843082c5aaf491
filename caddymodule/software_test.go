package caddymodule

import (
	"runtime/debug"
	"testing"
)

func TestVersionIn(t *testing.T) {
	module := func(path, version string) debug.Module { return debug.Module{Path: path, Version: version} }
	replaced := module(modulePath, "v1.2.3")
	replaced.Replace = &debug.Module{Path: "."}
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"nothing known", nil, "devel"},
		{"a dependency", &debug.BuildInfo{Main: module("caddy", "v2.0.0"), Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3"}}}, "v1.2.3"},
		{"the main module", &debug.BuildInfo{Main: module(modulePath, "v1.2.3")}, "v1.2.3"},
		{"a folder in its place", &debug.BuildInfo{Main: replaced}, "devel"},
		{"a working tree", &debug.BuildInfo{Main: module(modulePath, "(devel)")}, "devel"},
		{"no version", &debug.BuildInfo{Main: module(modulePath, "")}, "devel"},
		{"another module", &debug.BuildInfo{Main: module("caddy", "v2.0.0")}, "devel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := versionIn(tt.info); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
