package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/xcaddy"
)

// TestConfigMatchesGoMod checks that xcaddy.json contains the Caddy version of go.mod, this repository as the only plugin, and
// no flags that override xcaddy's defaults.
func TestConfigMatchesGoMod(t *testing.T) {
	text, err := os.ReadFile("../../xcaddy.json")
	if err != nil {
		t.Fatal(err)
	}
	var builder xcaddy.Builder
	if err := json.Unmarshal(text, &builder); err != nil {
		t.Fatal(err)
	}
	if want := commandOutput(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "github.com/caddyserver/caddy/v2"); builder.CaddyVersion != want {
		t.Errorf("caddy_version is %s, go.mod has %s", builder.CaddyVersion, want)
	}
	if len(builder.Plugins) != 1 || builder.Plugins[0].PackagePath != modulePath+"/caddymodule" || builder.BuildFlags != "" {
		t.Errorf("%+v", builder)
	}
}

func TestVersion(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@x.example"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-01-02T03:04:05+0200")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := func(name, folder, want string) {
		t.Helper()
		if got := version(t.Context(), folder); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	want("without a repository", root, "")
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "x")
	git("tag", "very-new")
	pseudo := "v0.0.0-20260102010405-" + commandOutput(t.Context(), "git", "-C", root, "rev-parse", "--short=12", "HEAD")
	want("without a tag that is a version", root, pseudo)
	want("in another's repository", filepath.Join(root, "vendored"), "")
	git("tag", "v0.3.0-rc.1")
	want("with a tag", root, "v0.3.0-rc.1")
}

// The module hashes in the test binary match go.sum.
func TestCheck(t *testing.T) {
	file, err1 := os.Executable()
	sums, err2 := os.ReadFile("../../go.sum")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := verifyModuleSums(file, string(sums)); err != nil {
		t.Error(err)
	}
	if err := verifyModuleSums(file, strings.ReplaceAll(string(sums), "github.com/caddyserver/xcaddy v", "github.com/caddyserver/xcaddy w")); err == nil || !strings.Contains(err.Error(), "whose checksum is not in go.sum") {
		t.Errorf("another module: %v", err)
	}
}
