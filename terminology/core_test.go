package terminology

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestCoreCounts(t *testing.T) {
	want := Counts{CodeSystems: 1063, ValueSets: 1317, Concepts: 20729}
	if got := coreLibrary(t).Counts(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// unexpandable are the value sets of R4 that R4 alone cannot expand for another reason than a code system
// or value set that is not part of R4.
var unexpandable = map[string]string{
	// Pins a version of its code system that R4 (4.0.1) does not have.
	"http://hl7.org/fhir/ValueSet/task-code": `version '3.6.0'`,
	// Filters by an ad hoc filter of an example code system, of which no data says what it selects.
	"http://hl7.org/fhir/ValueSet/example-filter": "acme-plasma",
	// Refers to a code system contained in it by a fragment, which is no url of a code system.
	"http://hl7.org/fhir/ValueSet/example-hierarchical": "#hacked",
	// Has all codes of a grammar.
	"http://hl7.org/fhir/ValueSet/all-languages": "has a grammar",
}

func TestCoreValueSetsExpand(t *testing.T) {
	l := coreLibrary(t)
	missing := regexp.MustCompile(`(code system|CodeSystem|value set) '?([^\s',]+)`)
	expanded, partly := 0, 0
	for _, vs := range l.set.valueSets {
		x, err := l.expanding(nil).codes(vs)
		if err == nil {
			expanded++
			if slices.ContainsFunc(x.codeSystems, func(i uint32) bool { return l.set.codeSystems[i].content != contentComplete }) {
				partly++
			}
			continue
		}
		if part := unexpandable[vs.url]; part != "" {
			wantText(t, err.Error(), part)
			continue
		}
		if !errors.Is(err, ErrIncomplete) {
			t.Errorf("%s: got %v, want something missing", vs.url, err)
			continue
		}
		name := missing.FindStringSubmatch(err.Error())
		if name == nil {
			t.Errorf("%s: the error names nothing that is missing: %v", vs.url, err)
			continue
		}
		if name[1] != "value set" {
			if index := l.set.codeSystem(name[2], ""); index != none && l.set.codeSystems[index].content.hasConcepts() {
				t.Errorf("%s: %v, but it is here", vs.url, err)
			}
		} else if _, ok := l.set.valueSet(name[2]); ok {
			t.Errorf("%s: %v, but it is here", vs.url, err)
		}
	}
	// 1,217 whole ones, and 5 of code systems that R4 itself has only as example or fragment.
	if expanded != 1222 || partly != 5 {
		t.Errorf("%d value sets expand, %d of them partly; want 1222 and 5", expanded, partly)
	}
}

func TestCoreExpansionsAreWhole(t *testing.T) {
	// These two are empty because R4 has no concept in their code systems.
	empty := []string{"http://hl7.org/fhir/ValueSet/message-events", "http://terminology.hl7.org/ValueSet/v3-policyHolderRole"}
	l := coreLibrary(t)
	for _, vs := range l.set.valueSets {
		x, err := l.expanding(nil).codes(vs)
		if err != nil {
			continue
		}
		if len(x.entries) == 0 != slices.Contains(empty, vs.url) {
			t.Errorf("%s has %d codes", vs.url, len(x.entries))
		}
		for _, e := range x.entries {
			if len(l.set.code(e)) == 0 {
				t.Errorf("%s has an empty code", vs.url)
			}
		}
	}
}

func TestCoreSpotChecks(t *testing.T) {
	l := coreLibrary(t)
	t.Run("administrative-gender", func(t *testing.T) {
		got := expand(t, l, "url", "http://hl7.org/fhir/ValueSet/administrative-gender")
		wantEntries(t, got, "male Male", "female Female", "other Other", "unknown Unknown")
		if system := got.Expansion.Contains[0].System; system != "http://hl7.org/fhir/administrative-gender" {
			t.Errorf("got system %s", system)
		}
	})
	t.Run("one letter", func(t *testing.T) {
		for filter, want := range map[string]string{"f": "female", "F": "female", "m": "male female", "k": "unknown", "z": ""} {
			wantCodes(t, expand(t, l, "url", "http://hl7.org/fhir/ValueSet/administrative-gender", "filter", filter), want)
		}
	})
	t.Run("marital-status", func(t *testing.T) {
		got := expand(t, l, "url", "http://hl7.org/fhir/ValueSet/marital-status", "filter", "married")
		wantCodes(t, got, "M S")
		if d := got.Expansion.Contains[1].Display; d != "Never Married" {
			t.Errorf("got %q", d)
		}
	})
	t.Run("relatedperson-relationshiptype", func(t *testing.T) {
		got := expand(t, l, "url", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype")
		i := slices.Index(got.codes(), "FRND")
		if i < 0 || got.Expansion.Contains[i].Display != "unrelated friend" {
			t.Errorf("no FRND, unrelated friend, in %v", got.codes())
		}
	})
	t.Run("a code system given as an example", func(t *testing.T) {
		got := expand(t, l, "url", "http://hl7.org/fhir/ValueSet/service-category", "count", "1")
		if ext := got.Expansion.Extension; len(ext) != 2 || !strings.HasSuffix(ext[0].URL, "valueset-unclosed") || !ext[0].ValueBoolean {
			t.Errorf("got extensions %+v", ext)
		}
		if !slices.Contains(got.parameters(), "used-example=http://terminology.hl7.org/CodeSystem/service-category|4.0.1") {
			t.Errorf("got parameters %v", got.parameters())
		}
	})
	t.Run("children by property", func(t *testing.T) {
		got := expand(t, l, "url", "http://terminology.hl7.org/ValueSet/v3-ActMoodPredicate")
		if !slices.Contains(got.codes(), "GOL") {
			t.Errorf("no GOL in %v", got.codes())
		}
	})
}

// TestCoreSize keeps the built-in definitions small in memory.
func TestCoreSize(t *testing.T) {
	before := heap()
	l, err := Load(t.Context(), Options{Core: true})
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

// TestCoreFile checks that the built-in file is as the generator writes it.
func TestCoreFile(t *testing.T) {
	decoder, err := zstd.NewReader(bytes.NewReader(coreDefinitions))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	lines := bufio.NewScanner(decoder)
	lines.Buffer(nil, 1<<22)
	count := map[string]int{}
	for lines.Scan() {
		var resource map[string]json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &resource); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(lines.Bytes(), []byte(`{"resourceType":"`)) {
			t.Fatalf("a line begins with %.40s", lines.Bytes())
		}
		for _, name := range []string{"text", "meta", "contact", "description", "copyright"} {
			if resource[name] != nil {
				t.Errorf("%s has %s", resource["url"], name)
			}
		}
		count[string(resource["resourceType"])]++
	}
	if err := lines.Err(); err != nil || count[`"CodeSystem"`] != 1063 || count[`"ValueSet"`] != 1317 || count[`"StructureDefinition"`] != 176 || len(count) != 3 {
		t.Errorf("got %v, %v", count, err)
	}
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
	l := coreLibrary(t)
	for context, want := range map[string]string{
		"Patient#Patient.gender":                   "http://hl7.org/fhir/ValueSet/administrative-gender",
		"Address#Address.use":                      "http://hl7.org/fhir/ValueSet/address-use",
		"Observation#Observation.status":           "http://hl7.org/fhir/ValueSet/observation-status",
		"Encounter#Encounter.class":                "http://terminology.hl7.org/ValueSet/v3-ActEncounterCode",
		"ValueSet#ValueSet.compose.include.system": "",
	} {
		context = "http://hl7.org/fhir/StructureDefinition/" + context
		if want == "" {
			if e := refused(t, l, "context", context); e.Status != 404 {
				t.Errorf("%s: got %v", context, e)
			}
			continue
		}
		if got := expand(t, l, "context", context); got.URL != want || len(got.Expansion.Contains) == 0 {
			t.Errorf("%s: got %s with %d codes", context, got.URL, len(got.Expansion.Contains))
		}
	}
}

// TestCoreBindings has what elements are bound to.
func TestCoreBindings(t *testing.T) {
	l := coreLibrary(t)
	// ResearchStudy and EvidenceVariable have elements of a later release; the others are bound to what is not HL7's.
	elsewhere := regexp.MustCompile(`StructureDefinition/(ResearchStudy|EvidenceVariable|ImagingStudy|MolecularSequence|ExplanationOfBenefit)#`)
	missing := 0
	for context, valueSet := range l.set.bindings {
		if _, ok := l.set.anyValueSet(valueSet, ""); !ok {
			missing++
			if !elsewhere.MatchString(context) {
				t.Errorf("%s: %s is not here", context, valueSet)
			}
		}
	}
	if len(l.set.bindings) < 1000 || missing > 20 {
		t.Errorf("%d contexts, %d of them bound to what is not here", len(l.set.bindings), missing)
	}
}
