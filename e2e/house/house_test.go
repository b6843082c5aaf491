package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The figures of this module are within their limits.
func TestLimits(t *testing.T) {
	figures, err := measure(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	l, err := readLimits("limits.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.check(figures); err != nil {
		t.Error(err)
	}
	for name := range targets {
		if !slices.ContainsFunc(figures, func(f figure) bool { return f.name == name }) {
			t.Errorf("%s: there is a target, but no such figure", name)
		}
	}
}

// small is a module with a standard build and a type that embeds others, directly and through a pointer.
var small = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26\n",
	"caddymodule/modules.go": `package caddymodule

import (
	_ "embed"
	_ "example.com/small/feature/a"          // an option
	_ "example.com/small/standard"           // more
	_ "example.com/small/caddymodule/modules/outcome" // core: errors
)
`,
	"standard/standard.go":                   "package standard\n\nimport _ \"example.com/small/feature/b\"\n",
	"feature/a/a.go":                         "package a\n",
	"feature/a/atest/support.go":             "package atest\n\n// 3\n",
	"feature/a/generate/main.go":             "package main\n\nfunc main() {}\n",
	"feature/b/b.go":                         "package b\n",
	"caddymodule/modules/outcome/outcome.go": "package outcome\n\nimport _ \"example.com/small/base\"\n",
	"base/base_test.go":                      "package base\n",
	"base/base.go": `package base

import "sync"

type Base struct {
	sync.Mutex
}

func (*Base) One() {}
func (Base) Two()  {}

type middle struct{ *Base }

func (middle) Three() {}

type Top struct{ middle }

func (*Top) Four() {}
`,
	"docs/reference/one.md": "# `one`\n\n### `a`\n\nDefault: x.\n",
	"docs/reference/two.md": "# Two\n\n### `b <c>`\n\nDefault: y.\n\n### Notes\n",
	"README.md":             "x\n```caddyfile\n1\n2\n```\n\n```caddyfile\n3\n```\n",
}

func write(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	t.Setenv("GOFLAGS", "")
	folder = t.TempDir()
	for name, text := range files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestMeasure(t *testing.T) {
	figures, err := measure(write(t, small))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range figures {
		got[f.name] = f.value
	}
	want := map[string]int{
		"lines linked by fhir_outcome": 21, "features": 2, "lines of Go": 34, "lines of tests": 4, "options documented": 2,
		"lines of README's first Caddyfile": 2, "types that reach over 25 methods": 0, "methods that one type reaches": 4,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestCheck(t *testing.T) {
	figures := []figure{{"stars", 4, "the sky"}}
	for name, tt := range map[string]struct {
		limits limits
		want   string
	}{
		"at the limit":       {limits{"stars": 4}, ""},
		"over it":            {limits{"stars": 3}, "stars: 4, at most 3 (the sky)"},
		"a limit of nothing": {limits{"moons": 1}, "moons: there is a limit"},
	} {
		if err := tt.limits.check(figures); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
