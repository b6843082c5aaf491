package caddymodule

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
