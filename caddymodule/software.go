package caddymodule

import (
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// modulePath is the path of this module, by which a binary's build information
// knows it.
const modulePath = "github.com/caddy-fhir/caddy-fhir"

// software is the version of this module that is in the binary, "devel" where it
// was built from a folder, and when the binary was made.
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
// nil.
func versionIn(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Replace == nil && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return "devel"
}
