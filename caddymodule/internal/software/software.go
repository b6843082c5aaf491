// Package software returns the version of caddy-fhir in the running binary.
package software

import (
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// modulePath is the path of this module in a binary's build information.
const modulePath = "github.com/caddy-fhir/caddy-fhir"

// init adds the version of caddy-fhir to the output of `caddy version`, unless the build has set CustomVersion.
func init() {
	if caddy.CustomVersion == "" {
		version, _ := Version()
		caddy.CustomVersion = "caddy-fhir " + version + ", Caddy"
	}
}

// Version returns this module's version in the running binary, or "devel" if it is unknown, and the binary's build time.
func Version() (version string, builtAt time.Time) {
	info, _ := debug.ReadBuildInfo()
	if name, err := os.Executable(); err == nil {
		if info, err := os.Stat(name); err == nil {
			builtAt = info.ModTime()
		}
	}
	return moduleVersion(info), builtAt
}

// moduleVersion returns the version of this module from build information, which may be nil. If the module was replaced by a
// folder, the version is the one that caddymodule/build read from git, or a pseudo-version of Go.
func moduleVersion(info *debug.BuildInfo) string {
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
