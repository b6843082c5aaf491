package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes files, given by name and content in turn, and returns their folder.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(root, files[i])
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// standard is a standard build with a core package, two features and a list of one.
func standard(t *testing.T) string {
	t.Helper()
	imports := func(lines ...string) string {
		return "package x\n\nimport (\n\t" + strings.Join(lines, "\n\t") + "\n)\n"
	}
	blank := func(folder string) string { return `_ "` + module + folder + `"` }
	return tree(t,
		"caddymodule/modules.go", imports(blank("core/guard")+" // core: a handler", blank("features/a")+" // a feature", `_ "embed"`, blank("lists/more")),
		"caddymodule/more.go", imports(`"`+module+`core/guard"`, blank("features/b"))+"\nvar _ = guard.X\n",
		"caddymodule/modules_test.go", imports(blank("features/ignored")),
		"lists/more/more.go", imports(blank("lists/c")),
		"lists/c/c.go", "package c\n",
		"features/a/a.go", imports(blank("features/below"))+"\nvar X int\n",
		"features/b/b.go", "package b\n",
	)
}

func TestFindFeatures(t *testing.T) {
	features, err := findFeatures(standard(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []feature{{"features/a", "caddymodule/modules.go", 5}, {"lists/c", "lists/more/more.go", 4}, {"features/b", "caddymodule/more.go", 5}}
	if !slices.Equal(features, want) {
		t.Errorf("got %v, want %v", features, want)
	}
	if _, err := findFeatures(t.TempDir()); err == nil {
		t.Error("no error for a folder without features")
	}
}

func TestDelete(t *testing.T) {
	root := standard(t)
	f := feature{"features/a", "caddymodule/modules.go", 5}
	if err := f.deleteFrom(root); err != nil {
		t.Fatal(err)
	}
	features, err := findFeatures(root)
	if err != nil || fmt.Sprint(features) != "[{lists/c lists/more/more.go 4} {features/b caddymodule/more.go 5}]" {
		t.Errorf("got %v, %v", features, err)
	}
	if _, err := os.Stat(filepath.Join(root, "features/a")); !os.IsNotExist(err) {
		t.Errorf("the folder remains: %v", err)
	}
}

func TestChoose(t *testing.T) {
	all := []feature{{folder: "x/a"}, {folder: "x/b"}, {folder: "y/c"}}
	for _, tt := range []struct {
		name, only string
		some       int
		want       int
	}{
		{"all", "", 0, 3},
		{"by name", "a,y/c", 0, 2},
		{"unknown name", "a,d", 0, -1},
		{"a sample", "", 2, 2},
		{"a sample of more than all", "", 9, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := choose(slices.Clone(all), tt.only, tt.some, 1)
			if (err != nil) != (tt.want < 0) || err == nil && len(got) != tt.want {
				t.Errorf("got %v, %v", got, err)
			}
			again, _ := choose(slices.Clone(all), tt.only, tt.some, 1)
			if !slices.Equal(got, again) {
				t.Errorf("the same seed chooses %v and %v", got, again)
			}
		})
	}
}

// TestCheck deletes features of a small module: one that nothing else needs, one that other code imports, and one that a test
// of another package needs.
func TestCheck(t *testing.T) {
	root := tree(t,
		"go.mod", "module "+strings.TrimSuffix(module, "/")+"\n\ngo 1.26\n",
		"core/core.go", "package core\n\nvar Registered []string\n",
		"caddymodule/modules.go", "package caddymodule\n\nimport (\n\t_ \""+module+"free\"\n\t_ \""+module+"used\"\n\t_ \""+module+"tested\"\n)\n",
		"free/free.go", "package free\n",
		"used/used.go", "package used\n\nvar X int\n",
		"user/user.go", "package user\n\nimport \""+module+"used\"\n\nvar Y = used.X\n",
		"tested/tested.go", "package tested\n\nimport \""+module+"core\"\n\nfunc init() { core.Registered = append(core.Registered, \"tested\") }\n",
		"caddymodule/modules_test.go", "package caddymodule\n\nimport (\n\t\"testing\"\n\n\t\""+module+"core\"\n)\n\n"+
			"func TestRegistered(t *testing.T) {\n\tif len(core.Registered) == 0 {\n\t\tt.Fail()\n\t}\n}\n",
		"untracked.go", "not Go",
	)
	for _, arguments := range [][]string{{"init", "-q"}, {"add", "go.mod", "core", "caddymodule", "free", "used", "user", "tested"}} {
		command := exec.CommandContext(t.Context(), "git", arguments...)
		command.Dir = root
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, output)
		}
	}
	features, err := findFeatures(root)
	if err != nil || len(features) != 3 {
		t.Fatalf("got %v, %v", features, err)
	}
	for name, want := range map[string]bool{"free": true, "used": false, "tested": false} {
		f, err := choose(features, name, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := check{tests: "./..."}
		if output, err := c.without(t.Context(), root, &f[0]); (err == nil) != want {
			t.Errorf("without %s: %v\n%s", name, err, output)
		}
	}
	c, f := check{vetOnly: true}, features[2]
	if output, err := c.without(t.Context(), root, &f); err != nil {
		t.Errorf("vet alone runs tests: %v\n%s", err, output)
	}
}
