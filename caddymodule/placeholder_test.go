package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// A secret that is not there is an error that says which variable or file is to blame,
// and why.
func TestResolveSecret(t *testing.T) {
	t.Setenv("SET", "s3cret")
	t.Setenv("EMPTY", "")
	folder := t.TempDir()
	full, empty := writeFile(t, "full", "s3cret\r\n"), writeFile(t, "empty", "\n")
	tests := []struct{ name, secret, want, fault string }{
		{"literal", "s3cret", "s3cret", ""},
		{"none", "", "", ""},
		{"variable", "{env.SET}", "s3cret", ""},
		{"variable within", "a-{env.SET}-b", "a-s3cret-b", ""},
		{"file", "{file." + full + "}", "s3cret", ""},
		{"variable that is not set", "{env.NONESUCH}", "", "{env.NONESUCH}: the environment variable is not set"},
		{"variable that is empty", "{env.EMPTY}", "", "{env.EMPTY}: the environment variable is empty"},
		{"second of two", "{env.SET}{env.NONESUCH}", "", "{env.NONESUCH}: the environment variable is not set"},
		{"file that is not there", "{file." + folder + "/nonesuch}", "", "nonesuch}: open " + folder + "/nonesuch: no such file or directory"},
		{"file that is a folder", "{file." + folder + "}", "", "is a directory"},
		{"file that is empty", "{file." + empty + "}", "", "the file is empty"},
		{"placeholder that is none", "{secret}", "", "unrecognized placeholder {secret}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resolveSecret(caddy.NewReplacer(), tt.secret)
			if tt.fault == "" && (err != nil || got != tt.want) {
				t.Errorf("got %q, %v", got, err)
			}
			if tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("error %v, want one with %q", err, tt.fault)
			}
		})
	}
}
