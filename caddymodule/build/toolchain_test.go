package main

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestFindToolchain(t *testing.T) {
	want, err := filepath.Abs(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := findToolchain(t.Context())
	if err != nil || found.Module != want || found.Root == "" {
		t.Errorf("found %+v, %v, want the module %s", found, err, want)
	}
	t.Chdir(t.TempDir())
	if found, err := findToolchain(t.Context()); err == nil {
		t.Errorf("found %+v outside of a module", found)
	}
}

func TestVerbose(t *testing.T) {
	for _, tt := range []struct {
		name    string
		environ []string
		want    string
	}{
		{"no flags", []string{"HOME=/home"}, "GOFLAGS=-v"},
		{"other flags", []string{"GOFLAGS=-modcacherw -trimpath", "HOME=/home"}, "GOFLAGS=-modcacherw -trimpath -v"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := verbose(tt.environ); got[len(got)-1] != tt.want || len(got) != len(tt.environ)+1 {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestOffline(t *testing.T) {
	t.Setenv("XCADDY_WHICH_GO", "/some/go")
	environ := []string{"HOME=/home", "GOPROXY=https://proxy.example", "GOFLAGS=-modcacherw", "GOPROXY=direct"}
	got, err := new(toolchain).offline(environ)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"HOME=/home", "GOFLAGS=-modcacherw",
		"GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off",
	}
	if !slices.Equal(got, want) {
		t.Errorf("environment is %q, want %q", got, want)
	}
	if environ[1] != "GOPROXY=https://proxy.example" {
		t.Error("the environment given was changed")
	}
}
