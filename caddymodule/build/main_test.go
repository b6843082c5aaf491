package main

import (
	"path/filepath"
	"runtime"
	"testing"
)

func TestOutputFile(t *testing.T) {
	native := "caddy"
	if runtime.GOOS == "windows" {
		native = "caddy.exe"
	}
	root := t.TempDir()
	absolute, err := filepath.Abs("other")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, output, target, want string }{
		{"native", "", "", filepath.Join(root, native)},
		{"for Linux", "", "linux", filepath.Join(root, "caddy")},
		{"for Windows", "", "windows", filepath.Join(root, "caddy.exe")},
		{"named", "other", "windows", absolute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("GOOS", test.target)
			if got, err := outputFile(test.output, root); err != nil || got != test.want {
				t.Errorf("got %s, %v; want %s", got, err, test.want)
			}
		})
	}
}
