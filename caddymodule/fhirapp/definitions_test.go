package fhirapp

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Definitions that cannot be loaded have a log line of their own, beside the error
// that Caddy ends with.
func TestMissingDefinitionsAreNamedFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ definitions, want string }{
		"missing": {"/nonesuch/*.json", "definitions /nonesuch/*.json: file does not exist"},
		"broken":  {gatewaytest.WriteFile(t, "broken.json", `{"resourceType":`), `broken.json: `},
	} {
		t.Run(name, func(t *testing.T) {
			text := filepath.Join(t.TempDir(), "text.log")
			config := gatewaytest.Adapt(t, "{\n\tlog {\n\t\toutput file "+text+"\n\t}\n}\n\nhttps://localhost:8443 {\n\tfhir_expand {\n\t\tcore off\n\t\tdefinitions "+tt.definitions+"\n\t}\n}\n")
			if _, err := gatewaytest.Provision(t, config); err == nil {
				t.Fatal("loaded")
			}
			failed := func(line map[string]any) bool { return line["msg"] == "definitions cannot be loaded" }
			lines := logLines(t, text)
			i := slices.IndexFunc(lines, failed)
			if i < 0 {
				t.Fatalf("logged %v", lines)
			}
			if got, _ := lines[i]["error"].(string); !strings.Contains(got, tt.want) {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

// A broken file is named, with the reason, and the configuration does not load.
func TestBrokenDefinitions(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "broken.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","compose":{"incl`)
	config := gatewaytest.Adapt(t, gatewaytest.ExampleText(t, "fhir_expand\n", "fhir_expand {\n\t\t\tdefinitions "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("error %v", err)
	}
}

// So is a broken file of weights, with the line.
func TestBrokenWeights(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "counts.csv", "#! http://x.example/cs\nA,3\nB,three\n")
	config := gatewaytest.Adapt(t, gatewaytest.ExampleText(t, "fhir_expand\n", "fhir_expand {\n\t\t\tweights "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file+": line 3: ") {
		t.Errorf("error %v", err)
	}
}
