package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// laymen is a concept map from what patients say, to a code system that loadLaymen loads.
const laymen = `{"resourceType":"ConceptMap","url":"http://x/laymen","version":"1","status":"active","group":[{"source":"http://x/lay","target":"http://x/cs","element":[
	{"code":"sugar","display":"Sugar disease","target":[{"code":"1","equivalence":"equivalent"}]},
	{"code":"broken","display":"Broken wrist","target":[{"code":"2","display":"Fracture of forearm","equivalence":"wider"}]},
	{"code":"stomach","display":"Stomach trouble","target":[{"code":"3","display":"Gastric ulcer","equivalence":"narrower"}]},
	{"code":"same","display":"Heart attack","target":[{"code":"4","display":"Myocardial infarction","relationship":"equivalent"}]},
	{"code":"under","display":"Bruised rib","target":[{"code":"5","display":"Thorax injury","relationship":"source-is-narrower-than-target"}]},
	{"code":"loose","display":"Faint","target":[{"code":"6","display":"Syncope","equivalence":"relatedto"},{"code":"6","display":"Syncope","equivalence":"inexact"},{"code":"6","display":"Syncope","equivalence":"disjoint"}]},
	{"code":"depends","display":"Weak","target":[{"code":"6","display":"Syncope","equivalence":"equal","dependsOn":[{"property":"http://x/p","value":"v"}]}]},
	{"code":"long","display":"What hurts after too much heavy food","target":[{"code":"3","display":"Gastric ulcer","equivalence":"equal"}]},
	{"code":"none","display":"Nothing","target":[{"equivalence":"unmatched"}]}]}]}`

const medicine = `{"resourceType":"CodeSystem","url":"http://x/cs","valueSet":"http://x/all","content":"complete","concept":[{"code":"1","display":"Diabetes mellitus"},
	{"code":"2","display":"Fracture of forearm"},{"code":"3","display":"Gastric ulcer"},{"code":"4","display":"Myocardial infarction"},{"code":"5","display":"Thorax injury"},
	{"code":"6","display":"Syncope"},{"code":"7","display":"Broken wrist"},{"code":"8","display":"Stomach trouble"}]}`

// loadLaymen loads a code system, with a concept map among the definitions or in a file of its own. What synonyms names
// NAMED is where the concept map is.
func loadLaymen(t *testing.T, conceptMap string, inFile bool, synonyms string) (*terminology.Library, error) {
	t.Helper()
	dir := t.TempDir()
	folder, own := filepath.Join(dir, "definitions"), filepath.Join(dir, "map.json")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if !inFile {
		own = filepath.Join(folder, "map.json")
	}
	for file, text := range map[string]string{filepath.Join(folder, "cs.json"): medicine, own: conceptMap} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return terminology.Load(t.Context(), definitions.Options{Definitions: []string{folder}, Synonyms: []string{strings.ReplaceAll(synonyms, "NAMED", own)}})
}

func TestConceptMapAsSynonyms(t *testing.T) {
	t.Parallel()
	for name, synonyms := range map[string]string{"canonical": "http://x/laymen", "canonical with a version": "http://x/laymen|1", "file": "NAMED"} {
		l, err := loadLaymen(t, laymen, synonyms == "NAMED", synonyms)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, test := range []struct{ name, filter, want string }{
			{"the display of the code system", "sugar disease", "1"},
			{"what is typed is found too", "broken wrist", "7 2"},
			{"what is wider does not find what is narrower", "fracture of forearm", "2"},
			{"narrower", "gastric ulcer", "3 8"},
			{"back to what is narrower", "stomach trouble", "8"},
			{"R5", "heart attack", "4"},
			{"R5, wider", "bruised rib", "5"},
			{"an inflection", "heart attacks", "4"},
			{"a relation that is not known", "faint", ""},
			{"a target that depends on more", "weak", ""},
		} {
			t.Run(name+": "+test.name, func(t *testing.T) {
				t.Parallel()
				wantCodes(t, expand(t, l, "url", "http://x/all", "filter", test.filter), test.want)
			})
		}
	}
}

// TestConceptMapInALanguage has rules count in the language of the concept map.
func TestConceptMapInALanguage(t *testing.T) {
	t.Parallel()
	l, err := loadLaymen(t, strings.Replace(laymen, `"status"`, `"language":"de","status"`, 1), false, "http://x/laymen")
	if err != nil {
		t.Fatal(err)
	}
	wantCodes(t, expand(t, l, "url", "http://x/all", "filter", "sugar disease"), "")
}

// TestConceptMapBackToLay has words of a code system find those of a concept map's source.
func TestConceptMapBackToLay(t *testing.T) {
	t.Parallel()
	turned := strings.NewReplacer(`"source":"http://x/lay","target":"http://x/cs"`, `"source":"http://x/cs","target":"http://x/lay"`, `"code":"sugar","display":"Sugar disease"`, `"code":"1"`,
		`{"code":"1","equivalence":"equivalent"}`, `{"code":"sugar","display":"Honey urine","equivalence":"equivalent"}`).Replace(laymen)
	l, err := loadLaymen(t, turned, false, "http://x/laymen")
	if err != nil {
		t.Fatal(err)
	}
	wantCodes(t, expand(t, l, "url", "http://x/all", "filter", "honey urine"), "1")
}

// TestConceptMapsThatMakeNoSynonyms has errors that say what is wrong, and where.
func TestConceptMapsThatMakeNoSynonyms(t *testing.T) {
	t.Parallel()
	const empty = `{"resourceType":"ConceptMap","url":"http://x/laymen","group":[{"source":"http://x/a","target":"http://x/b","element":[%s]}]}`
	var many strings.Builder
	for i := range 50_001 {
		fmt.Fprintf(&many, `{"code":"%d","display":"lay%d","target":[{"code":"%d","display":"term%d","equivalence":"equal"}]},`, i, i, i, i)
	}
	for _, test := range []struct{ name, conceptMap, synonyms, want string }{
		{"no such canonical", laymen, "http://x/other", "no ConceptMap of this canonical"},
		{"no such version", laymen, "http://x/laymen|2", "no ConceptMap of this canonical"},
		{"no such file", laymen, "NAMED.json", "no such file"},
		{"another resource", medicine, "NAMED", "no ConceptMap"},
		{"no JSON", "htn = hypertension", "NAMED", "map.json"},
		{"nothing in it", fmt.Sprintf(empty, ""), "NAMED", "makes none"},
		{"no displays", fmt.Sprintf(empty, `{"code":"1","target":[{"code":"2","equivalence":"equal"}]}`), "NAMED", "makes none"},
		{"the same displays", fmt.Sprintf(empty, `{"code":"1","display":"Flu","target":[{"code":"2","display":"flu","equivalence":"equal"}]}`), "NAMED", "makes none"},
		{"too much in it", fmt.Sprintf(empty, strings.TrimSuffix(many.String(), ",")), "NAMED", "makes more than 100000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := loadLaymen(t, test.conceptMap, true, test.synonyms); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "synonyms in ") {
				t.Errorf("got %v", err)
			}
		})
	}
}
