package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The error for an invalid Caddyfile contains the line and the offending word.
func TestBadCaddyfile(t *testing.T) {
	tests := []struct {
		name, old, new string
		word           string
	}{
		{"unknown word in fhir", "fhir_base /fhir/R4", "fhir_bas /fhir/R4", "fhir_bas"},
		{"unknown word in a client", "grant_type client_credentials", "grand_type client_credentials", "grand_type"},
		{"unknown word in a user", "phone +15550100", "fone +15550100", "fone"},
		{"unknown grant type", "grant_type client_credentials", "grant_type password", "password"},
		{"surplus word", "fhir_base /fhir/R4", "fhir_base /fhir/R4 /fhir/R5", "/fhir/R5"},
		{"redirect URI with a fragment", "http://localhost:3000/callback", "http://localhost:3000/callback#x", "callback#x"},
		{"redirect URI without TLS", "http://localhost:3000/callback", "http://app.example.org/callback", "app.example.org"},
		{"argument of fhir_bearer", "fhir_bearer", "fhir_bearer {\n\t\t\tnonsense\n\t\t}", "nonsense"},
		{"argument of fhir_expand", "fhir_expand", "fhir_expand {\n\t\t\tcore on\n\t\t}", "on"},
		{"argument of fhir_outcome", "fhir_outcome", "fhir_outcome surplus", "surplus"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "Caddyfile")
			writeExample(t, file, test.old, test.new)
			for _, command := range []string{"adapt", "validate"} {
				output, err := example.command(command, "--config", file, "--adapter", "caddyfile")
				if err == nil {
					t.Fatalf("caddy %s takes it", command)
				}
				want := fmt.Sprintf("%s:%d", file, lineOf(t, file, test.word))
				if !regexp.MustCompile(regexp.QuoteMeta(want) + `\b`).Match(output) {
					t.Errorf("caddy %s does not name the line, %s:\n%s", command, want, output)
				}
				if !strings.Contains(string(output), test.word) {
					t.Errorf("caddy %s does not name the word, %s:\n%s", command, test.word, output)
				}
			}
		})
	}
}

// lineOf returns the number of the first line of a file that contains the word.
func lineOf(t *testing.T, file, word string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		comment := strings.HasPrefix(strings.TrimSpace(line), "#")
		if !comment && (slices.Contains(strings.Fields(line), word) || strings.Contains(line, "/"+word)) {
			return i + 1
		}
	}
	t.Fatalf("no line with %q", word)
	return 0
}

// Validation creates no keys and writes nothing, except the instance id and the internal CA of Caddy's own modules.
func TestValidateWritesNothing(t *testing.T) {
	home := t.TempDir()
	g := &gateway{environ: []string{
		"HOME=" + home, "XDG_DATA_HOME=" + filepath.Join(home, "data"), "XDG_CONFIG_HOME=" + filepath.Join(home, "config"),
	}}
	if output, err := g.command("validate", "--config", "../Caddyfile.example", "--adapter", "caddyfile"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	err := filepath.WalkDir(home, func(path string, entry os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, home)
		ofCaddy := strings.HasPrefix(name, "/data/caddy/pki/") || strings.HasSuffix(name, "/instance.uuid") || strings.HasSuffix(name, "/last_clean.json")
		if err == nil && !entry.IsDir() && !ofCaddy {
			t.Errorf("left behind: %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
