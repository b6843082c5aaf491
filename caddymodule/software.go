package caddymodule

import (
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// modulePath is the path of this module, by which a binary's build information
// knows it.
const modulePath = "github.com/caddy-fhir/caddy-fhir"

// init has `caddy version` tell our version before Caddy's own, unless whoever built the
// binary had it tell something else.
func init() {
	if caddy.CustomVersion == "" {
		version, _ := software()
		caddy.CustomVersion = "caddy-fhir " + version + ", Caddy"
	}
}

// software is the version of this module that is in the binary, "devel" where that is
// not known, and when the binary was made.
func software() (version string, made time.Time) {
	info, _ := debug.ReadBuildInfo()
	if name, err := os.Executable(); err == nil {
		if info, err := os.Stat(name); err == nil {
			made = info.ModTime()
		}
	}
	return versionIn(info), made
}

// versionIn is the version of this module by a binary's build information, which may be
// nil. A folder in its place has the version that caddymodule/build read from git, or
// one that Go made up.
func versionIn(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && strings.HasPrefix(m.Version, "v") && !strings.HasPrefix(m.Version, "v0.0.0-0001") {
			return m.Version
		}
	}
	return "devel"
}
