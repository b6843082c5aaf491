package expand

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

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

// The status lists the packages that a loaded package depends on.
func TestMissingPackages(t *testing.T) {
	t.Parallel()
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	fixture.WriteFile(t, filepath.Join(folder, "package.json"), []byte(`{"name":"x","dependencies":{"org.example":"1.0.x"}}`))
	fixture.WriteFile(t, filepath.Join(folder, "colours.json"), []byte(fixture.Colours))
	p, err := loadDefinitions(ctx, definitions.Options{Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.status().Missing; !slices.Equal(got, []string{"org.example#1.0.x"}) {
		t.Errorf("got %q", got)
	}
	if err := p.release(); err != nil {
		t.Error(err)
	}
}

// Cached responses are not used after files have changed. Handlers with different options have different definitions.
func TestChangedDefinitionsAreNotShared(t *testing.T) {
	t.Parallel()
	file := gatewaytest.WriteFile(t, "vs.json", `{"resourceType":"ValueSet","url":"http://x.example/vs","status":"active"}`)
	o := definitions.Options{Core: true, Definitions: []string{file}}
	before, key := fingerprint(&o), definitionsKey(&o)
	gatewaytest.ReplaceFile(t, file, `{"resourceType":"ValueSet","url":"http://x.example/vs2","status":"active"}`)
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
