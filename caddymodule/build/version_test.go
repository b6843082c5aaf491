package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caddyserver/xcaddy"
)

func TestSourceVersion(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@x.example"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-01-02T03:04:05+0200")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if got := sourceVersion(t.Context(), root); got != "" {
		t.Errorf("without a repository: %q", got)
	}
	run("init", "-q")
	if got := sourceVersion(t.Context(), root); got != "" {
		t.Errorf("without a commit: %q", got)
	}
	run("commit", "-q", "--allow-empty", "-m", "x")
	want := "v0.0.0-20260102010405-" + git(t.Context(), root, "rev-parse", "--short=12", "HEAD")
	if got := sourceVersion(t.Context(), root); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	below := filepath.Join(root, "vendored")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := sourceVersion(t.Context(), below); got != "" {
		t.Errorf("within another's repository: %q", got)
	}
	run("tag", "very-new")
	if got := sourceVersion(t.Context(), root); got != want {
		t.Errorf("a tag that is no version: %q", got)
	}
	run("tag", "v0.3.0-rc.1")
	if got := sourceVersion(t.Context(), root); got != "v0.3.0-rc.1" {
		t.Errorf("a tag: %q", got)
	}
}

// TestSetVersion checks the replacements: none may be of all versions of a module of which another replaces a single
// one, because go mod edit drops one of the two if xcaddy passes them in the other order.
func TestSetVersion(t *testing.T) {
	other, own := xcaddy.NewReplace("example.org/other", "/o"), xcaddy.NewReplace("example.org/m", "/m")
	for version, want := range map[string][]xcaddy.Replace{
		"":       {other, own},
		"v1.0.0": {other, xcaddy.NewReplace("example.org/m@v1.0.0", "/m"), xcaddy.NewReplace("example.org", "/m")},
	} {
		builder := &xcaddy.Builder{Replacements: []xcaddy.Replace{other, own}}
		setVersion(builder, "example.org/m", version)
		if !slices.Equal(builder.Replacements, want) {
			t.Errorf("%q: %v", version, builder.Replacements)
		}
	}
}
