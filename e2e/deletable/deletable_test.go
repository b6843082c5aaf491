package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/caddy-fhir/caddy-fhir/e2e/feature"
)

// tree writes files, given as alternating names and contents, and returns their folder.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root, content := t.TempDir(), fstest.MapFS{}
	for file := range slices.Chunk(files, 2) {
		content[file[0]] = &fstest.MapFile{Data: []byte(file[1]), Mode: 0o600}
	}
	if err := os.CopyFS(root, content); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestChoose(t *testing.T) {
	all := []feature.Feature{{Folder: "x/a"}, {Folder: "x/b"}, {Folder: "y/c"}}
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

// Only a feature that nothing else depends on can be deleted. A feature that other code imports, or that a test of another
// package needs, cannot.
func TestCheck(t *testing.T) {
	root := tree(t,
		"go.mod", "module "+module+"\n\ngo 1.26\n",
		"core/core.go", "package core\n\nvar Registered []string\n",
		"caddymodule/modules.go", "package caddymodule\n\nimport (\n\t_ \""+module+"/free\"\n\t_ \""+module+"/used\"\n\t_ \""+module+"/tested\"\n)\n",
		"free/free.go", "package free\n",
		"used/used.go", "package used\n\nvar X int\n",
		"user/user.go", "package user\n\nimport \""+module+"/used\"\n\nvar Y = used.X\n",
		"tested/tested.go", "package tested\n\nimport \""+module+"/core\"\n\nfunc init() { core.Registered = append(core.Registered, \"tested\") }\n",
		"caddymodule/modules_test.go", "package caddymodule\n\nimport (\n\t\"testing\"\n\n\t\""+module+"/core\"\n)\n\n"+
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
	features, err := feature.Find(root, module)
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
