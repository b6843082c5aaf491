package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/caddyserver/xcaddy"
)

// ownVersion matches the versions that a tag can give this module.
var ownVersion = regexp.MustCompile(`^v[01]\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// sourceVersion is the version of the sources in root as Go would name it: the tag of the commit, or a pseudo-version;
// empty if unknown. It does not show uncommitted changes.
func sourceVersion(ctx context.Context, root string) string {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return "" // a repository around root is another project's
	}
	if tag := git(ctx, root, "describe", "--tags", "--exact-match", "--match", "v*"); ownVersion.MatchString(tag) {
		return tag
	}
	version := git(ctx, root, "log", "-1", "--abbrev=12", "--date=format-local:%Y%m%d%H%M%S", "--format=v0.0.0-%cd-%h")
	if !ownVersion.MatchString(version) {
		return ""
	}
	return version
}

// git returns git's output for a folder, or nothing if it fails.
func git(ctx context.Context, folder string, args ...string) string {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// setVersion gives the binary the version of a replaced module. Go would make up v0.0.0 of the year 1, but takes the highest
// version that is replaced. The replacement of all versions stays, since xcaddy recognises the module by it.
func setVersion(builder *xcaddy.Builder, module, version string) {
	for _, r := range builder.Replacements {
		if r.Old.String() == module && version != "" {
			builder.Replacements = append(builder.Replacements, xcaddy.NewReplace(module+"@"+version, r.New.String()))
		}
	}
}
