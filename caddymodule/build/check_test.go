package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestReadPins(t *testing.T) {
	p, err := readPins(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build info")
	}
	for _, m := range info.Deps {
		if p.versions[m.Path] != m.Version {
			t.Errorf("%s is %q in the pins, %s in this test", m.Path, p.versions[m.Path], m.Version)
		}
		if !p.sums[m.Path+" "+m.Version+" "+m.Sum] {
			t.Errorf("%s %s has no sum in the pins", m.Path, m.Version)
		}
	}
}

func TestCheck(t *testing.T) {
	p := &pins{
		module:   "example.org/own",
		versions: map[string]string{"example.org/a": "v1.0.0"},
		sums:     map[string]bool{"example.org/a v1.0.0 h1:a": true, "example.org/a v1.1.0 h1:b": true},
	}
	own := &debug.Module{Path: "example.org/own", Version: "(devel)"}
	for _, test := range []struct {
		name string
		with *debug.Module
		want string
	}{
		{"as pinned", &debug.Module{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:a"}, ""},
		{"another version", &debug.Module{Path: "example.org/a", Version: "v1.1.0", Sum: "h1:b"}, "go.mod says v1.0.0"},
		{"another hash", &debug.Module{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:c"}, "not in go.sum"},
		{"a module more", &debug.Module{Path: "example.org/b", Version: "v1.0.0", Sum: "h1:a"}, "not in go.mod"},
		{
			"a replaced one",
			&debug.Module{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:a", Replace: &debug.Module{Path: "/fork"}},
			"replaced by",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantError(t, p.check([]*debug.Module{own, test.with}), test.want)
		})
	}
	for _, test := range []struct{ name, version, want string }{
		{"our own version", "v0.1.0", ""},
		{"no version of our own", "v0.0.0-00010101000000-000000000000", "git says v0.1.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &pins{module: "example.org/own", version: "v0.1.0"}
			wantError(t, p.check([]*debug.Module{{Path: "example.org/own", Version: test.version}}), test.want)
		})
	}
	t.Run("without our own", func(t *testing.T) {
		wantError(t, p.check(nil), "example.org/own is not in the binary")
	})
}

// wantError checks that err holds the text want, or is nil if that is empty.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error is %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error is %v, want one that says %q", err, want)
	}
}
