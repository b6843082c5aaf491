package api

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

func TestCoreCounts(t *testing.T) {
	want := definitions.Counts{CodeSystems: 1063, ValueSets: 1317 + 1, Concepts: 20729} // and one of a source
	if got := coreLibrary(t).Counts(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
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

// randomSystem makes a code system in some versions, whose concepts differ between them: in their number, what is
// above them, a property, and whether they are active.
func randomSystem(r *rand.Rand, url string, versions int) []string {
	var all []string
	for version := range versions {
		var concepts []string
		for i := range 2 + r.IntN(5) {
			properties := []string{fmt.Sprintf(`{"code":"kind","valueCode":"k%d"}`, r.IntN(3))}
			if r.IntN(4) == 0 {
				properties = append(properties, `{"code":"inactive","valueBoolean":true}`)
			}
			if i > 0 && r.IntN(2) == 0 {
				properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, r.IntN(i)))
			}
			concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ",")))
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"version":"%d.0","status":"active","content":"complete","concept":[%s]}`,
			url, version+1, strings.Join(concepts, ",")))
	}
	return all
}

// randomInclude makes one include or exclude: of a system, in one of its versions or the latest, and of value sets, if
// there are any so far. What is listed may be of a system, or a version of one, that is not here.
func randomInclude(r *rand.Rand, versions, valueSets int) string {
	set := map[string]any{}
	if valueSets > 0 && r.IntN(3) == 0 {
		set["valueSet"] = []string{fmt.Sprintf("http://x/v%d", r.IntN(valueSets))}
	}
	if len(set) == 0 || r.IntN(2) == 0 {
		set["system"] = fmt.Sprintf("http://x/s%d", r.IntN(2))
		if versions > 1 && r.IntN(2) == 0 {
			set["version"] = []string{"1.0", "2.0", "*"}[r.IntN(versions+1)]
		}
		ops := []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}
		switch r.IntN(4) {
		case 0:
			set["concept"] = []map[string]string{{"code": fmt.Sprintf("c%d", r.IntN(7))}, {"code": fmt.Sprintf("c%d", r.IntN(7))}}
			switch r.IntN(6) {
			case 0:
				set["system"] = "http://x/s2"
			case 1:
				set["system"] = "http://x/s3"
			case 2:
				set["version"] = "9.0"
			}
		case 1:
			set["filter"] = []map[string]string{{"property": "concept", "op": ops[r.IntN(len(ops))], "value": fmt.Sprintf("c%d", r.IntN(2))}}
		case 2:
			set["filter"] = []map[string]string{{"property": "kind", "op": []string{"in", "not-in"}[r.IntN(2)], "value": "k0,k1"}, {"property": "code", "op": "regex", "value": "c[0-3]"}}
		}
	}
	text, _ := json.Marshal(set)
	return string(text)
}

// validCodes are the codes of which $validate-code says that a value set has them.
func validCodes(t *testing.T, h *Handler, url, common string) []string {
	t.Helper()
	var codes, validations []string
	for i := range 28 {
		codes = append(codes, fmt.Sprintf("s%d c%d", i%4, i/4))
		validations = append(validations, `{"name":"validation","resource":`+parametersOf(
			uri("system", fmt.Sprintf("http://x/s%d", i%4)), fmt.Sprintf(`{"name":"code","valueCode":"c%d"}`, i/4))+`}`)
	}
	w, _ := call(t, h, "POST", "/ValueSet/$batch-validate-code", parametersOf(append(validations, uri("url", url), common)...))
	valid, i := []string{}, 0
	for _, one := range strings.Split(w.Body.String(), `{"name":"validation"`)[1:] {
		if strings.Contains(one, `{"name":"result","valueBoolean":true}`) {
			valid = append(valid, codes[i])
		}
		i++
	}
	if i != len(codes) {
		t.Fatalf("got %s", w.Body)
	}
	return valid
}

// A code is in a value set exactly if the expansion has it: $validate-code, which looks for it without an expansion,
// must find the same, whatever the value set is made of.
func TestValidateAgreesWithExpand(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 5))
		versions := 1 + int(seed%2)
		definitions := append(randomSystem(r, "http://x/s0", versions), randomSystem(r, "http://x/s1", versions)...)
		definitions = append(definitions, versionedSystem("http://x/s3", "1.0", []string{"not-present", "fragment", "example"}[seed%3], "")) // s2 is not here at all
		for v := range 3 {
			imports := v
			if versions > 1 {
				imports = 0 // where versions meet that were chosen elsewhere, which of the two counts is another matter
			}
			compose := fmt.Sprintf(`{"inactive":%t,"include":[%s,%s],"exclude":[%s]}`, r.IntN(3) > 0, randomInclude(r, versions, imports),
				randomInclude(r, versions, imports), randomInclude(r, versions, imports))
			definitions = append(definitions, valueSetOf(fmt.Sprintf("http://x/v%d", v), compose))
		}
		h := &Handler{Library: libraryOf(t, definitions...)}
		for v := range 3 {
			for _, active := range []string{"false", "true"} {
				url := fmt.Sprintf("http://x/v%d", v)
				listed := []string{}
				for _, c := range expandWith(t, h, "url", url, "activeOnly", active, "excludeNested", "true").Expansion.Contains {
					if code := strings.TrimPrefix(c.System, "http://x/") + " " + c.Code; !slices.Contains(listed, code) {
						listed = append(listed, code)
					}
				}
				valid := validCodes(t, h, url, `{"name":"activeOnly","valueBoolean":`+active+`}`)
				slices.Sort(listed)
				slices.Sort(valid)
				if !slices.Equal(listed, valid) {
					t.Errorf("seed %d, value set %d, activeOnly %s: expanded %q, valid %q\n%s", seed, v, active, listed, valid, definitions[len(definitions)-3+v])
				}
			}
		}
	}
}
