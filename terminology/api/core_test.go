package api_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestCoreCounts(t *testing.T) {
	want := definitions.Counts{CodeSystems: 1063, ValueSets: 1317, Concepts: 20729}
	if got := terminologytest.Core(t).Counts(); got != want {
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

// TestCoreSize keeps the built-in definitions small in memory.
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

// heap returns the size of what is reachable.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestImports keeps this package free of the server around it. The bounded cache knows nothing of that.
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

// The elements of R4's own resources and types are contexts: each is bound to a value set, nearly all of which are here.
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
			if e := terminologytest.Refused(t, l, "context", context); e.Status != 404 {
				t.Errorf("%s: got %v", context, e)
			}
			continue
		}
		if got := terminologytest.Expand(t, l, "context", context); got.URL != want || len(got.Expansion.Contains) == 0 {
			t.Errorf("%s: got %s with %d codes", context, got.URL, len(got.Expansion.Contains))
		}
	}
}
