package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/xcaddy"
)

// root is the folder of go.mod, from this package.
const root = "../.."

func TestConfigMatchesGoMod(t *testing.T) {
	builder, err := readConfig(filepath.Join(root, configFile))
	if err != nil {
		t.Fatal(err)
	}
	p, err := readPins(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if want := p.versions["github.com/caddyserver/caddy/v2"]; builder.CaddyVersion != want {
		t.Errorf("caddy_version is %s, go.mod says %s", builder.CaddyVersion, want)
	}
	if len(builder.Plugins) != 1 || builder.Plugins[0].PackagePath != p.module+"/caddymodule" {
		t.Errorf("plugins are %v, want the caddymodule of %s alone", builder.Plugins, p.module)
	}
	if len(builder.Replacements) != 1 || builder.Replacements[0] != xcaddy.NewReplace(p.module, ".") {
		t.Errorf("replacements are %v, want %s by . alone", builder.Replacements, p.module)
	}
	if builder.BuildFlags != "" {
		t.Errorf("build_flags %q replace xcaddy's own, and with them the shared build cache", builder.BuildFlags)
	}
}

func TestDecodeConfig(t *testing.T) {
	for _, test := range []struct {
		name, json string
		ok         bool
	}{
		{"empty object", `{}`, true},
		{"known fields", `{"caddy_version": "v2.0.0", "plugins": [{"module_path": "a/b"}]}`, true},
		{"unknown field", `{"caddy_versoin": "v2.0.0"}`, false},
		{"unknown nested field", `{"plugins": [{"path": "a/b"}]}`, false},
		{"wrong type", `{"plugins": "a/b"}`, false},
		{"second value", `{} {}`, false},
		{"rubbish after it", `{} x`, false},
		{"nothing", ``, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := decodeConfig(strings.NewReader(test.json)); (err == nil) != test.ok {
				t.Errorf("error is %v, want ok = %t", err, test.ok)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	base := t.TempDir()
	for _, test := range []struct{ name, path, want string }{
		{"the folder itself", ".", base},
		{"below it", "./sub", filepath.Join(base, "sub")},
		{"beside it", "../fork", filepath.Join(filepath.Dir(base), "fork")},
		{"absolute", base, base},
		{"another module", "example.org/fork v1.2.3", "example.org/fork v1.2.3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			builder := &xcaddy.Builder{Replacements: []xcaddy.Replace{xcaddy.NewReplace("example.org/m", test.path)}}
			resolve(builder, base)
			if got := builder.Replacements[0]; got != xcaddy.NewReplace("example.org/m", test.want) {
				t.Errorf("replacement is %v, want %s", got, test.want)
			}
		})
	}
}
