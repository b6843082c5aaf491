package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestDefinitionSources(t *testing.T) {
	folder := t.TempDir()
	bundle := `{"resourceType":"Bundle","type":"collection","entry":[{"fullUrl":"urn:x","resource":` + fixture.SingleConceptCodeSystem("http://x/bundled", "1", "b") +
		`},{"resource":{"resourceType":"Patient","name":[{"family":"X"}]}},{"resource":{"resourceType":"Bundle","entry":[{"resource":` + fixture.AllCodesOf("http://x/bundled") + `}]}}]}`
	fixture.WriteFile(t, filepath.Join(folder, "sets", "deep", "bundle.json"), []byte(bundle))
	fixture.WriteFile(t, filepath.Join(folder, "sets", "notes.txt"), []byte("not JSON"))
	fixture.WriteFile(t, filepath.Join(folder, "sets", ".index.json"), []byte("not JSON"))
	fixture.WriteFile(t, filepath.Join(folder, "sets", "package.json"), []byte(`{"name":"x"}`))
	fixture.WriteFile(t, filepath.Join(folder, "sets", ".hidden", "x.json"), []byte("not JSON"))
	fixture.WriteFile(t, filepath.Join(folder, "sets", "other", "x.json"), []byte(`{"no":"resource"}`))
	fixture.WriteFile(t, filepath.Join(folder, "two.json"), []byte(fixture.SingleConceptCodeSystem("http://x/two", "1", "t")+"\n"+fixture.AllCodesOf("http://x/two")+"\n"))
	for _, name := range []string{"a", "b"} {
		fixture.WriteFile(t, filepath.Join(folder, "packages", name+".tgz"), fixture.Package(t,
			"package/package.json", `{"name":"x"}`, "package/.index.json", `{"files":[]}`,
			"package/CodeSystem-"+name+".json", fixture.SingleConceptCodeSystem("http://x/"+name, "1", name),
			"package/ValueSet-"+name+".json", fixture.AllCodesOf("http://x/"+name),
			"package/StructureDefinition-x.json", `{"resourceType":"StructureDefinition","url":"http://x/sd","snapshot":{"element":[{"id":"x"}]}}`,
			"package/example/ValueSet-x.json", "not JSON", "package/other/x.json", "not JSON", "other/x.json", "not JSON"))
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{
		filepath.Join(folder, "packages", "*.tgz"), filepath.Join(folder, "sets"), filepath.Join(folder, "two.json"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Definitions().Counts(), (definitions.Counts{CodeSystems: 4, ValueSets: 4, Concepts: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for url, code := range map[string]string{"bundled": "b", "a": "a", "b": "b", "two": "t"} {
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/"+url+"-all"), code)
	}
}

func TestDefinitionPatterns(t *testing.T) {
	folder := t.TempDir()
	fixture.WriteFile(t, filepath.Join(folder, "[a].json"), []byte(fixture.AllCodesOf("http://x/a")))
	for _, pattern := range []string{"none.json", "*.tgz", "none/*", "["} {
		_, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{filepath.Join(folder, pattern)}})
		if err == nil {
			t.Errorf("%s: no error", pattern)
			continue
		}
		fixture.WantContains(t, err.Error(), pattern)
		if pattern != "[" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v does not wrap fs.ErrNotExist", err)
		}
	}
	if _, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{filepath.Join(folder, "[a].json")}}); err != nil {
		t.Errorf("file name that looks like a pattern: %v", err)
	}
}

// TestEmptyDefinitions checks that a folder without definitions only causes a warning, because files may be added later.
func TestEmptyDefinitions(t *testing.T) {
	folder := t.TempDir()
	fixture.WriteFile(t, filepath.Join(folder, "notes.txt"), nil)
	var log syncedBuffer
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{folder}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil || l.Definitions().Counts() != (definitions.Counts{}) {
		t.Fatalf("got %v, %v", l, err)
	}
	fixture.WantContains(t, log.take(), "WARN", "folder contains no definitions", folder)
}

func TestLoadCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := terminology.Load(ctx, definitions.Options{Core: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestMemberOrder(t *testing.T) {
	// JSON objects are unordered: resourceType is last, and nested concepts precede their parent's other members.
	l := terminologytest.Library(t, `{"concept":[{"concept":[{"display":"In \u0026 \"out\"","code":"b"}],"property":[{"valueBoolean":true,"code":"hidden"}],"code":"a"}],
		"property":[{"uri":"http://hl7.org/fhir/concept-properties#notSelectable","code":"hidden","type":"boolean"}],
		"content":"complete","url":"http://x/cs","resourceType":"CodeSystem"}`,
		`{"compose":{"include":[{"filter":[{"value":"a","op":"is-a","property":"concept"}],"system":"http://x/cs"}]},"url":"http://x/vs","resourceType":"ValueSet"}`)
	got := terminologytest.Expand(t, l, "url", "http://x/vs")
	terminologytest.WantCodes(t, got, "a b")
	if c := got.Expansion.Contains; !c[0].Abstract || c[1].Display != `In & "out"` {
		t.Errorf("got %+v", c)
	}
	if got.Status != "unknown" {
		t.Errorf("got status %q", got.Status)
	}
}

func TestPrecedence(t *testing.T) {
	tests := []struct {
		name      string
		resources []string
		want      string
	}{
		{"the same version: later", []string{fixture.SingleConceptCodeSystem("http://x/a", "1", "old"), fixture.SingleConceptCodeSystem("http://x/a", "1", "new")}, "new"},
		{"higher version first", []string{fixture.SingleConceptCodeSystem("http://x/a", "10.0", "ten"), fixture.SingleConceptCodeSystem("http://x/a", "9.0", "nine")}, "ten"},
		{"one without version: later", []string{fixture.SingleConceptCodeSystem("http://x/a", "1", "old"), fixture.SingleConceptCodeSystem("http://x/a", "", "new")}, "new"},
		{"a date and a number: later", []string{fixture.SingleConceptCodeSystem("http://x/a", "2018-08-12", "old"), fixture.SingleConceptCodeSystem("http://x/a", "2.0.0", "new")}, "new"},
		{"a number and a date: later", []string{fixture.SingleConceptCodeSystem("http://x/a", "2.0.0", "old"), fixture.SingleConceptCodeSystem("http://x/a", "2018-08-12", "new")}, "new"},
		{"dates", []string{fixture.SingleConceptCodeSystem("http://x/a", "2019-01-02", "new"), fixture.SingleConceptCodeSystem("http://x/a", "2018-08-12", "old")}, "new"},
		{"one without version: later again", []string{fixture.SingleConceptCodeSystem("http://x/a", "", "old"), fixture.SingleConceptCodeSystem("http://x/a", "1", "new")}, "new"},
		{"content goes before none", []string{
			fixture.SingleConceptCodeSystem("http://x/a", "1", "here"),
			`{"resourceType":"CodeSystem","url":"http://x/a","version":"2","status":"active","content":"not-present"}`,
		}, "here"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := terminologytest.Library(t, append(test.resources, fixture.AllCodesOf("http://x/a"))...)
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/a-all"), test.want)
			var valueSets []string // value sets that list a code of each code system
			for _, cs := range test.resources {
				var d struct {
					Version string
					Concept []struct{ Code string }
				}
				if err := json.Unmarshal([]byte(cs), &d); err != nil {
					t.Fatal(err)
				}
				if len(d.Concept) > 0 { // value sets have no counterpart of a code system without content
					valueSets = append(valueSets, fixture.ComposedValueSet("http://x/vs", d.Version, `{"system":"http://x/a","concept":[{"code":"`+d.Concept[0].Code+`"}]}`))
				}
			}
			terminologytest.WantCodes(t, terminologytest.Expand(t, terminologytest.Library(t, valueSets...), "url", "http://x/vs"), test.want)
		})
	}
	t.Run("value sets", func(t *testing.T) {
		set := func(version, code string) string {
			return fmt.Sprintf(`{"resourceType":"ValueSet","url":"http://x/vs","version":%q,"status":"active","compose":{"include":[{"system":"http://x/s","concept":[{"code":%q}]}]}}`, version, code)
		}
		l := terminologytest.Library(t, set("2.0.0", "two"), set("10.0.0-ballot", "ballot"), set("10.0.0", "old-ten"), set("10.0.0", "ten"))
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs"), "ten")
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs|2.0.0"), "two")
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs|10.0.0-ballot"), "ballot")
		if l.Definitions().Counts().Replaced != 1 || l.Definitions().Counts().ValueSets != 3 {
			t.Errorf("got %+v", l.Definitions().Counts())
		}
		got := terminologytest.Expand(t, l, "url", "http://x/vs|2.0.0")
		if got.URL != "http://x/vs" || got.Version != "2.0.0" {
			t.Errorf("got url %q, version %q", got.URL, got.Version)
		}
		if e := terminologytest.ExpandError(t, l, "url", "http://x/vs|3"); !errors.Is(e, outcome.ErrUnknown) {
			t.Errorf("got %v", e)
		}
	})
	t.Run("over the core", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "x.json")
		fixture.WriteFile(t, name, []byte(fixture.SingleConceptCodeSystem("http://hl7.org/fhir/administrative-gender", "4.0.1", "x")))
		l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://hl7.org/fhir/ValueSet/administrative-gender"), "x")
	})
}

func TestCoreCounts(t *testing.T) {
	want := definitions.Counts{CodeSystems: 1063, ValueSets: 1317, Concepts: 20729}
	if got := terminologytest.Core(t).Definitions().Counts(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCoreSpotChecks(t *testing.T) {
	l := terminologytest.Core(t)
	t.Run("administrative-gender", func(t *testing.T) {
		got := terminologytest.Expand(t, l, "url", "http://hl7.org/fhir/ValueSet/administrative-gender")
		terminologytest.WantEntries(t, got, "male Male", "female Female", "other Other", "unknown Unknown")
		if system := got.Expansion.Contains[0].System; system != "http://hl7.org/fhir/administrative-gender" {
			t.Errorf("got system %s", system)
		}
	})
	t.Run("one letter", func(t *testing.T) {
		for filter, want := range map[string]string{"f": "female", "F": "female", "m": "male female", "k": "unknown", "z": ""} {
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://hl7.org/fhir/ValueSet/administrative-gender", "filter", filter), want)
		}
	})
	t.Run("marital-status", func(t *testing.T) {
		got := terminologytest.Expand(t, l, "url", "http://hl7.org/fhir/ValueSet/marital-status", "filter", "married")
		terminologytest.WantCodes(t, got, "M S")
		if d := got.Expansion.Contains[1].Display; d != "Never Married" {
			t.Errorf("got %q", d)
		}
	})
	t.Run("relatedperson-relationshiptype", func(t *testing.T) {
		got := terminologytest.Expand(t, l, "url", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype")
		i := slices.Index(got.Codes(), "FRND")
		if i < 0 || got.Expansion.Contains[i].Display != "unrelated friend" {
			t.Errorf("no FRND, unrelated friend, in %v", got.Codes())
		}
	})
	t.Run("a code system given as an example", func(t *testing.T) {
		got := terminologytest.Expand(t, l, "url", "http://hl7.org/fhir/ValueSet/service-category", "count", "1")
		if ext := got.Expansion.Extension; len(ext) != 2 || !strings.HasSuffix(ext[0].URL, "valueset-unclosed") || !ext[0].ValueBoolean {
			t.Errorf("got extensions %+v", ext)
		}
		if !slices.Contains(got.Parameters(), "used-example=http://terminology.hl7.org/CodeSystem/service-category|4.0.1") {
			t.Errorf("got parameters %v", got.Parameters())
		}
	})
	t.Run("children by property", func(t *testing.T) {
		got := terminologytest.Expand(t, l, "url", "http://terminology.hl7.org/ValueSet/v3-ActMoodPredicate")
		if !slices.Contains(got.Codes(), "GOL") {
			t.Errorf("no GOL in %v", got.Codes())
		}
	})
}

// TestCoreSize checks that the built-in definitions stay within their memory limit.
func TestCoreSize(t *testing.T) {
	before := heap()
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true})
	if err != nil {
		t.Fatal(err)
	}
	if used := int64(heap()) - int64(before); used > 20<<20 {
		t.Errorf("the core takes %d bytes of heap", used)
	}
	runtime.KeepAlive(l)
}

// heap returns the reachable heap memory in bytes.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestImports checks that this package does not depend on the server that embeds it.
func TestImports(t *testing.T) {
	const ours, ground = "github.com/caddy-fhir/caddy-fhir/terminology/", "github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if strings.Contains(path, "caddy") && path != ground && !strings.HasPrefix(path+"/", ours) {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
}

// TestCoreContexts checks that elements of R4 resources and data types are contexts, nearly all with loaded value sets.
func TestCoreContexts(t *testing.T) {
	l := terminologytest.Core(t)
	for context, want := range map[string]string{
		"Patient#Patient.gender":                   "http://hl7.org/fhir/ValueSet/administrative-gender",
		"Address#Address.use":                      "http://hl7.org/fhir/ValueSet/address-use",
		"Observation#Observation.status":           "http://hl7.org/fhir/ValueSet/observation-status",
		"Encounter#Encounter.class":                "http://terminology.hl7.org/ValueSet/v3-ActEncounterCode",
		"ValueSet#ValueSet.compose.include.system": "",
	} {
		context = "http://hl7.org/fhir/StructureDefinition/" + context
		if want == "" {
			if e := terminologytest.ExpandError(t, l, "context", context); e.Status != 404 {
				t.Errorf("%s: got %v", context, e)
			}
			continue
		}
		if got := terminologytest.Expand(t, l, "context", context); got.URL != want || len(got.Expansion.Contains) == 0 {
			t.Errorf("%s: got %s with %d codes", context, got.URL, len(got.Expansion.Contains))
		}
	}
}
