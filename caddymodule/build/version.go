package main

import (
	"context"
	"os"
	"os/exec"
	"path"
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

// setVersion replaces the module at this version alone, so that Go selects this version. Without a version, Go would make
// up v0.0.0 of the year 1.
//
// xcaddy must not fetch a plugin that is replaced. It recognizes one by a replacement whose path, without a version, is a
// prefix of the plugin's, so the folder above the module's path is replaced, too; no package is below it. The module's
// own path cannot serve: xcaddy passes replacements to go mod edit in random order, and a replacement of all versions
// drops an earlier one of a single version.
func setVersion(builder *xcaddy.Builder, module, version string) {
	if version == "" {
		return
	}
	for i, r := range builder.Replacements {
		if r.Old.String() == module {
			builder.Replacements[i] = xcaddy.NewReplace(module+"@"+version, r.New.String())
			builder.Replacements = append(builder.Replacements, xcaddy.NewReplace(path.Dir(module), r.New.String()))
		}
	}
}
