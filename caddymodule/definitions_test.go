package caddymodule

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
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

func TestDefinitionsArePooled(t *testing.T) {
	t.Parallel()
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	first, err := loadDefinitions(ctx, definitions.Options{Core: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadDefinitions(ctx, definitions.Options{Core: true})
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Error("the same definitions were loaded twice")
	}
	for _, d := range []*pooledLibrary{first, second} {
		if err := d.release(); err != nil {
			t.Error(err)
		}
	}
}

// What was answered from files as they were is not found when they have changed, and other
// options make other definitions of them.
func TestChangedDefinitionsAreOthers(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "vs.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","status":"active"}`)
	o := definitions.Options{Core: true, Definitions: []string{file}}
	before, key := fingerprint(&o), definitionsKey(&o)
	if err := os.WriteFile(file, []byte(`{"resourceType":"ValueSet","url":"http://x.example/vs2","status":"active"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if fingerprint(&o) == before {
		t.Error("a changed file has the same fingerprint")
	}
	if definitionsKey(&o) != key {
		t.Error("a changed file has another place in the pool, where it is not noticed by those who use it")
	}
	for name, o := range map[string]definitions.Options{
		"the core": {}, "synonyms": {Core: true, Synonyms: []string{file}},
		"weights": {Core: true, Weights: []string{file}},
	} {
		o.Definitions = []string{file}
		if definitionsKey(&o) == key {
			t.Errorf("%s: makes no difference to the key", name)
		}
	}
}

// A broken file is named, with the reason, and the configuration does not load.
func TestBrokenDefinitions(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "broken.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","compose":{"incl`)
	config := gatewaytest.Adapt(t, exampleWith(t, "fhir_expand\n", "fhir_expand {\n\t\t\tdefinitions "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("error %v", err)
	}
}

// So is a broken file of weights, with the line.
func TestBrokenWeights(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "counts.csv", "#! http://x.example/cs\nA,3\nB,three\n")
	config := gatewaytest.Adapt(t, exampleWith(t, "fhir_expand\n", "fhir_expand {\n\t\t\tweights "+file+"\n\t\t}\n"))
	_, err := gatewaytest.Provision(t, config)
	if err == nil || !strings.Contains(err.Error(), file+": line 3: ") {
		t.Errorf("error %v", err)
	}
}
