package caddymodule

import (
	"os"
	"runtime/debug"
	"time"
)

// modulePath is the path of this module, by which a binary's build information
// knows it.
const modulePath = "github.com/caddy-fhir/caddy-fhir"

// software is the version of this module that is in the binary, "devel" where it
// was built from a folder, and when the binary was made.
func software() (version string, made time.Time) {
	version = "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == modulePath && m.Replace == nil && m.Version != "" && m.Version[0] == 'v' {
				version = m.Version
			}
		}
	}
	if name, err := os.Executable(); err == nil {
		if info, err := os.Stat(name); err == nil {
			made = info.ModTime()
		}
	}
	return version, made
}
