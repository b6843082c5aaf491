package definitions

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestMissingPackages(t *testing.T) {
	colours := "package/CodeSystem-colours.json"
	of := func(dependencies string) string {
		return `{"name":"guide","version":"1.0.0","fhirVersions":["4.0.1"],"dependencies":` + dependencies + `}`
	}
	tests := []struct {
		name, manifest string
		core           bool
		want           string // missing packages, and level of the log record
	}{
		{"no dependencies", `{"name":"guide","version":"1.0.0"}`, false, ""},
		{"loaded", of(`{"org.base":"2.1.3"}`), false, ""},
		{"loaded patch version", of(`{"org.base":"2.1.x"}`), false, ""},
		{"loaded minor version", of(`{"org.base":"2.x"}`), false, ""},
		{"labels", of(`{"org.base":"current","org.other":"current$main"}`), false, "org.other#current$main WARN"},
		{"label of a branch", of(`{"org.base":"current$main"}`), false, ""},
		{"terminology without built-in definitions", of(`{"hl7.terminology.r4":"6.0.2"}`), false, "hl7.terminology.r4#6.0.2 WARN"},
		{"development version", of(`{"org.base":"dev"}`), false, ""},
		{"other version", of(`{"org.base":"2.2.x"}`), false, "org.base#2.2.x WARN"},
		{"not loaded", of(`{"org.b":"1.0.0","org.a":"3.0.0","org.base":"2.1.3"}`), false, "org.a#3.0.0 org.b#1.0.0 WARN"},
		{"alias", of(`{"base@npm:org.base":"2.1.3","v3@npm:org.base":"3.0.0"}`), false, "org.base#3.0.0 WARN"},
		{"R4", of(`{"hl7.fhir.r4.core":"4.0.1","hl7.fhir.r4.expansions":"4.0.1"}`), true, ""},
		{"R4 without built-in definitions", of(`{"hl7.fhir.r4.core":"4.0.1"}`), false, "hl7.fhir.r4.core#4.0.1 WARN"},
		{"partly built in", of(`{"hl7.terminology.r4":"6.0.2"}`), true, "hl7.terminology.r4#6.0.2 INFO"},
		{"partly built in, and another", of(`{"hl7.terminology.r4":"6.0.2","org.a":"1"}`), true, "hl7.terminology.r4#6.0.2 org.a#1 WARN"},
		{"JavaScript packages", of(`{"express":"^4.0.0","@types/node.js":"1.0.0"}`), false, ""},
		{"malformed", `{"dependencies":`, false, ""},
		{"malformed dependencies", of(`["org.a"]`), false, ""},
		{"malformed version", of(`{"org.a":7,"org.b":"1.0.0"}`), false, "org.a# org.b#1.0.0 WARN"},
		{"byte order mark", "\ufeff" + of(`{"org.a":"1"}`), false, "org.a#1 WARN"},
		{"too many", of(`{` + fixture.Repeat(maxDependencies+1, func(i int) string { return `"org.base` + strings.Repeat("x", i) + `":"2.1.3"` }) + `}`), false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			packed, unpacked := filepath.Join(folder, "guide.tgz"), filepath.Join(folder, "unpacked")
			base := filepath.Join(folder, "z.tgz")
			fixture.WriteFile(t, base, fixture.Package(t, colours, fixture.Colours, "package/package.json", `{"name":"org.base","version":"2.1.3"}`))
			fixture.WriteFile(t, packed, fixture.Package(t, "package/package.json", test.manifest, colours, fixture.Colours))
			fixture.WriteFile(t, filepath.Join(unpacked, manifestName), []byte(test.manifest))
			fixture.WriteFile(t, filepath.Join(unpacked, "CodeSystem-colours.json"), []byte(fixture.Colours))
			fixture.WriteFile(t, filepath.Join(unpacked, "CodeSystem-animals.json"), []byte(fixture.Animals))
			for _, source := range []string{packed, unpacked} {
				var log bytes.Buffer
				l, err := Load(t.Context(), Options{Definitions: []string{source, base}, Core: test.core, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				level, records := "", strings.Count(log.String(), "package dependencies not loaded")
				if records > 0 {
					level = strings.Fields(log.String()[strings.Index(log.String(), "level=")+len("level="):])[0]
				}
				got := strings.TrimSpace(strings.Join(l.MissingPackages, " ") + " " + level)
				if test.name == "too many" {
					if len(l.MissingPackages) != maxDependencies-1 {
						t.Errorf("got %d missing packages", len(l.MissingPackages))
					}
					continue
				}
				if got != test.want || records > 1 || records == 1 && !strings.Contains(log.String(), source) {
					t.Errorf("%s: got %s, want %s; log:\n%s", source, got, test.want, &log)
				}
			}
		})
	}
}

// TestManifestSize checks that a manifest of any size is no error.
func TestManifestSize(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tgz")
	long := `{"name":"x","dependencies":{"org.a":"` + strings.Repeat("1", maxManifest) + `"}}`
	fixture.WriteFile(t, name, fixture.Package(t, "package/package.json", long, "package/a.json", fixture.Colours))
	l, err := Load(t.Context(), Options{Definitions: []string{name}})
	if err != nil || !slices.Equal(l.MissingPackages, nil) || l.Counts().CodeSystems != 1 {
		t.Errorf("got %v, %v", l, err)
	}
}
