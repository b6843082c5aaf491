package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const colours = `{"resourceType":"Bundle","type":"collection","entry":[
	{"resource":{"resourceType":"CodeSystem","url":"https://example.org/cs/colours","status":"active","content":"complete",
		"concept":[{"code":"r","display":"Red"},{"code":"g","display":"Green"}]}},
	{"resource":{"resourceType":"ValueSet","url":"https://example.org/vs/colours","status":"active",
		"compose":{"include":[{"system":"https://example.org/cs/colours"}]}}}]}`

// The error for a truncated definitions file contains the file's name. On a reload, a running server keeps its definitions.
func TestTruncatedDefinitions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "colours.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(colours)
	g := startTestGateway(t, "gateway-definitions", fhirServer.address, "fhir_expand", "fhir_expand {\n\t\t\tdefinitions "+file+"\n\t\t}")
	token := g.serviceToken(t)
	expands := func(t *testing.T) {
		t.Helper()
		var got expansion
		g.expand(t, token, "https://example.org/vs/colours").is(t, http.StatusOK).decode(t, &got)
		if displays := got.displays(); !slices.Equal(displays, []string{"Red", "Green"}) {
			t.Errorf("got %q", displays)
		}
	}
	expands(t)
	write(colours[:len(colours)/2])

	for _, args := range [][]string{
		{"validate", "--config", g.caddyfile, "--adapter", "caddyfile"},
		{"reload", "--force", "--config", g.caddyfile, "--adapter", "caddyfile", "--address", g.admin},
	} {
		t.Run(args[0], func(t *testing.T) {
			output, err := g.command(args...)
			if err == nil {
				t.Fatalf("caddy %s takes it", args[0])
			}
			for _, want := range []string{file, "unexpected"} {
				if !strings.Contains(string(output), want) {
					t.Errorf("no %q in:\n%s", want, output)
				}
			}
			expands(t)
			g.expand(t, token, gender).is(t, http.StatusOK)
		})
	}
	t.Run("whole again, it loads", func(t *testing.T) {
		write(strings.Replace(colours, "Red", "Crimson", 1))
		g.reload(t)
		var got expansion
		g.expand(t, token, "https://example.org/vs/colours").is(t, http.StatusOK).decode(t, &got)
		if displays := got.displays(); !slices.Equal(displays, []string{"Crimson", "Green"}) {
			t.Errorf("got %q", displays)
		}
	})
}

// Unusual definitions are either loaded or rejected. None of them crashes the gateway.
func TestOddDefinitions(t *testing.T) {
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"null", "null"},
		{"a list", "[]"},
		{"no resource type", "{}"},
		{"property without a code", `{"resourceType":"CodeSystem","url":"https://example.org/cs","concept":[{"code":"0","property":[{"value":""}]}]}`},
		{"concept without a code", `{"resourceType":"CodeSystem","url":"https://example.org/cs","concept":[{"display":"x"}]}`},
		{"concepts in a circle", `{"resourceType":"CodeSystem","url":"https://example.org/cs","content":"complete","concept":[{"code":"a","property":[{"code":"parent","valueCode":"a"}]}]}`},
		{"a value set of itself", `{"resourceType":"ValueSet","url":"https://example.org/vs","compose":{"include":[{"valueSet":["https://example.org/vs"]}]}}`},
		{"deep", strings.Repeat(`{"a":`, 20000)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			definitions, caddyfile := filepath.Join(folder, "odd.json"), filepath.Join(folder, "Caddyfile")
			if err := os.WriteFile(definitions, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			writeExample(t, caddyfile, "fhir_expand", "fhir_expand {\n\t\t\tdefinitions "+definitions+"\n\t\t}")
			output, err := example.command("validate", "--config", caddyfile, "--adapter", "caddyfile")
			if _, stack, panicked := strings.Cut(string(output), "panic: "); panicked {
				t.Errorf("panic: %.600s", stack)
			} else if err != nil && !strings.Contains(string(output), definitions) {
				t.Errorf("refused without naming the file:\n%s", output)
			}
		})
	}
}
