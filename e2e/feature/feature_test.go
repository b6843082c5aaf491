package feature

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "example.com/module"

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

// standard writes a standard build with a core package, two features, and a list with one feature.
func standard(t *testing.T) string {
	t.Helper()
	imports := func(lines ...string) string {
		return "package x\n\nimport (\n\t" + strings.Join(lines, "\n\t") + "\n)\n"
	}
	blank := func(folder string) string { return `_ "` + module + "/" + folder + `"` }
	return tree(t,
		"caddymodule/modules.go", imports(blank("core/guard")+" // core: a handler", blank("features/a")+" // a feature", `_ "embed"`, blank("lists/more")),
		"caddymodule/more.go", imports(`"`+module+`/core/guard"`, blank("features/b"))+"\nvar _ = guard.X\n",
		"caddymodule/modules_test.go", imports(blank("features/ignored")),
		"lists/more/more.go", imports(blank("lists/c")),
		"lists/c/c.go", "package c\n",
		"features/a/a.go", imports(blank("features/below"))+"\nvar X int\n",
		"features/b/b.go", "package b\n",
	)
}

func TestFind(t *testing.T) {
	features, err := Find(standard(t), module)
	if err != nil {
		t.Fatal(err)
	}
	want := []Feature{{"features/a", "caddymodule/modules.go", 5}, {"lists/c", "lists/more/more.go", 4}, {"features/b", "caddymodule/more.go", 5}}
	if !slices.Equal(features, want) {
		t.Errorf("got %v, want %v", features, want)
	}
	if _, err := Find(t.TempDir(), module); err == nil {
		t.Error("no error for a folder without features")
	}
}

func TestDelete(t *testing.T) {
	root := standard(t)
	f := Feature{"features/a", "caddymodule/modules.go", 5}
	if err := f.DeleteFrom(root); err != nil {
		t.Fatal(err)
	}
	features, err := Find(root, module)
	if err != nil || fmt.Sprint(features) != "[{lists/c lists/more/more.go 4} {features/b caddymodule/more.go 5}]" {
		t.Errorf("got %v, %v", features, err)
	}
	if _, err := os.Stat(filepath.Join(root, "features/a")); !os.IsNotExist(err) {
		t.Errorf("the folder remains: %v", err)
	}
}
