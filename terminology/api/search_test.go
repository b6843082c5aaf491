package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// TestSearchResourceTypes checks that the words in names that FHIR writes without spaces, such as resource types, can be found.
func TestSearchResourceTypes(t *testing.T) {
	const types = "http://hl7.org/fhir/ValueSet/resource-types"
	l := terminologytest.Core(t)
	for _, part := range []string{"Definition", "Request", "Response"} {
		found := terminologytest.Expand(t, l, "url", types, "filter", strings.ToLower(part)).Codes()
		for _, code := range terminologytest.Expand(t, l, "url", types).Codes() {
			if strings.Contains(code, part) && !slices.Contains(found, code) {
				t.Errorf("%s does not find %s: %q", part, code, found)
			}
		}
		inside := func(code string) bool { return !strings.HasPrefix(code, part) }
		if first := slices.IndexFunc(found, inside); first >= 0 && slices.ContainsFunc(found[first:], func(code string) bool { return !inside(code) }) {
			t.Errorf("%s: not first what begins so: %q", part, found)
		}
	}
}

// TestUsedSupplement checks that an expansion reports language packs only if it contains codes, as HL7's tests for LOINC require.
func TestUsedSupplement(t *testing.T) {
	pack := `{"resourceType":"CodeSystem","url":"http://x/nl","content":"supplement","supplements":"http://x/limbs",
		"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-supplement-type","valueCode":"lang-pack"}]}`
	l := terminologytest.Library(t, fixture.Limbs(3), pack,
		fixture.ValueSet("http://x/some", `{"include":[{"system":"http://x/limbs","concept":[{"code":"3"}]}]}`),
		fixture.ValueSet("http://x/none", `{"include":[{"system":"http://x/limbs","filter":[{"property":"code","op":"=","value":"x"}]}]}`))
	for url, want := range map[string]bool{"http://x/some": true, "http://x/none": false} {
		w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", "/ValueSet/$expand?url="+url, "")
		if body := w.Body.String(); !strings.Contains(body, `"expansion"`) || strings.Contains(body, "used-supplement") != want {
			t.Errorf("%s: %s", url, body)
		}
	}
}

// TestSearchSupplement checks that designations in supplements are found like those in the code system, with the same rank.
func TestSearchSupplement(t *testing.T) {
	more := `{"resourceType":"CodeSystem","url":"http://x/more","content":"supplement","supplements":"http://x/limbs","concept":[
		{"code":"1","designation":[{"language":"de","value":"Arm, aus Knochen"}]},
		{"code":"3","designation":[{"language":"de","value":"Knochen, hart"},{"value":"os"}]}]}`
	spanish := `{"resourceType":"CodeSystem","url":"http://x/es","language":"es","content":"supplement","supplements":"http://x/limbs",
		"concept":[{"code":"3","display":"Hueso"}]}`
	pack := `{"resourceType":"CodeSystem","url":"http://x/nl","language":"nl","content":"supplement","supplements":"http://x/limbs",
		"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-supplement-type","valueCode":"lang-pack"}],
		"concept":[{"code":"3","designation":[{"language":"nl","value":"Bot"}]}]}`
	named := func(url, compose string) string {
		return `{"resourceType":"ValueSet","url":"` + url + `","status":"active","extension":[
			{"url":"http://hl7.org/fhir/StructureDefinition/valueset-supplement","valueCanonical":"http://x/more"}],"compose":` + compose + `}`
	}
	const all, of, importing = "http://x/limbs-all", "http://x/vs", "http://x/importing"
	for _, test := range []struct{ name, url, filter, supplement, language, want string }{
		{"not used", all, "knoch", "", "", ""},
		{"used by the request", all, "knoch", "http://x/more", "", "3 1"},
		{"used by the value set", of, "knoch", "", "", "3 1"},
		{"used by a value set that is imported", importing, "knoch", "", "", "3 1"},
		{"in the requested language", all, "knoch", "http://x/more", "de", "3 1"},
		{"not in another", all, "knoch", "http://x/more", "fr", ""},
		{"in no language", all, "os", "http://x/more", "fr", "3"},
		{"the head of a text", all, "hart knochen", "http://x/more", "de", "3"},
		{"display, one letter", all, "k", "http://x/more", "de", "3"},
		{"with a word of the code system", all, "bone knoch", "http://x/more", "", "3"},
		{"a display", all, "hueso", "http://x/es", "", "3"},
		{"a display in its language", all, "hueso", "http://x/es", "es", "3"},
		{"a display in another, as that of the code system", all, "hueso", "http://x/es", "fr", "3"},
		{"a language pack, which needs no name", all, "bot", "", "nl", "3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, concepts := range []int{3, 600} {
				l := terminologytest.Library(t, fixture.Limbs(concepts), fixture.AllCodesOf("http://x/limbs"), more, spanish, pack, named(of, `{"include":[{"system":"http://x/limbs"}]}`),
					fixture.ValueSet(importing, `{"include":[{"valueSet":["http://x/vs"]}]}`))
				pairs := []string{"url", test.url, "filter", test.filter}
				if test.supplement != "" {
					pairs = append(pairs, "useSupplement", test.supplement)
				}
				if test.language != "" {
					pairs = append(pairs, "displayLanguage", test.language)
				}
				terminologytest.WantCodes(t, terminologytest.Expand(t, l, pairs...), test.want)
			}
		})
	}
}

// TestSearchBackwards checks that equally good matches have the order of the value set, not of the code system.
func TestSearchBackwards(t *testing.T) {
	var list, want []string
	for i := 600; i > 3; i-- {
		list = append(list, fmt.Sprintf(`{"code":"%d"}`, i))
		want = append(want, fmt.Sprint(i))
	}
	l := terminologytest.Library(t, fixture.Limbs(600), fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/limbs","concept":[`+strings.Join(list, ",")+`]}]}`))
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(want, " "))
}

// TestSearchTwoRuns checks the order of matches if a value set lists later concepts of a code system before earlier ones.
func TestSearchTwoRuns(t *testing.T) {
	var want []string
	for i := 300; i < 600; i++ {
		want = append(want, fmt.Sprint(i))
	}
	for i := 4; i < 300; i++ {
		want = append(want, fmt.Sprint(i))
	}
	l := terminologytest.Library(t, fixture.Limbs(600), fixture.ValueSet("http://x/vs", `{"include":[
		{"system":"http://x/limbs","filter":[{"property":"code","op":"regex","value":"[345].."}]},{"system":"http://x/limbs"}]}`))
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(append(want, "600"), " "))
}

// loadWith loads a code system and the given synonym lists.
func loadWith(t *testing.T, synonyms ...string) (*terminology.Library, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cs.json")
	fixture.WriteFile(t, file, []byte(`{"resourceType":"CodeSystem","url":"http://x/cs","valueSet":"http://x/all","content":"complete",
		"concept":[{"code":"1","display":"Hypertension"},{"code":"2","display":"Kidney disease"}]}`))
	return terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}, Synonyms: synonyms})
}

// TestSynonyms checks that synonyms from the built-in list and from a custom file are found.
func TestSynonyms(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "words.txt")
	fixture.WriteFile(t, words, []byte("renal => kidney\n"))
	l, err := loadWith(t, definitions.EnglishSynonyms, words)
	if err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "htn"), "1")
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "renal dis"), "2")
	if l, err = l.WithResources(); err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "htn"), "1")
}

// TestSynonymsInFullExpansion checks that synonyms of the library also apply to full expansions.
func TestSynonymsInFullExpansion(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "words.txt")
	fixture.WriteFile(t, words, []byte("renal => kidney\n#! de\nniere => kidney\n"))
	l, err := loadWith(t, definitions.EnglishSynonyms, words)
	if err != nil {
		t.Fatal(err)
	}
	w := buildFullExpansion(t, &api.Handler{Library: l}, new(expansion.FullExpansionBuilder), 100, "url", "http://x/all")
	for _, filter := range []string{"htn", "renal dis", "niere", "kidney"} {
		for name, synonyms := range map[string]*textindex.Synonyms{"with": l.Definitions().Synonyms(), "without": nil} {
			body, err := w.Expand(expansion.Page{Filter: filter}, synonyms, 100)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if synonyms != nil || filter == "kidney" {
				want = strings.Join(terminologytest.Expand(t, l, "url", "http://x/all", "filter", filter).Codes(), " ")
			}
			var got terminologytest.Expanded
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if codes := strings.Join(got.Codes(), " "); codes != want {
				t.Errorf("%s synonyms, %q: got %q, want %q", name, filter, codes, want)
			}
		}
	}
	german := buildFullExpansion(t, &api.Handler{Library: l}, new(expansion.FullExpansionBuilder), 100, "url", "http://x/all", "displayLanguage", "de")
	body, err := german.Expand(expansion.Page{Filter: "niere"}, l.Definitions().Synonyms(), 100)
	if err != nil {
		t.Fatal(err)
	}
	fixture.WantContains(t, string(body), `"code":"2"`)
}

// TestInvalidSynonymFiles checks that errors contain the file name and line.
func TestInvalidSynonymFiles(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "words.txt")
	fixture.WriteFile(t, words, []byte("a => b\nhtn\n"))
	for _, name := range []string{words, words + "x"} {
		if _, err := loadWith(t, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCorrectedFilter checks that the response reports how a misspelled word was corrected.
func TestCorrectedFilter(t *testing.T) {
	t.Parallel()
	l, err := loadWith(t)
	if err != nil {
		t.Fatal(err)
	}
	got := terminologytest.Expand(t, l, "url", "http://x/all", "filter", "hypretension")
	terminologytest.WantCodes(t, got, "1")
	if parameters := strings.Join(got.Parameters(), " "); !strings.Contains(parameters, "corrected-filter=hypertension") {
		t.Errorf("parameters %s", parameters)
	}
	got = terminologytest.Expand(t, l, "url", "http://x/all", "filter", "hypert")
	if parameters := strings.Join(got.Parameters(), " "); strings.Contains(parameters, "corrected-filter") {
		t.Errorf("parameters %s", parameters)
	}
}

// TestGermanCompounds checks that parts find compounds in scanned, indexed and full expansions, but only in German.
func TestGermanCompounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		language string
		more     int // number of additional concepts
		want     string
	}{{"de", 0, "1 2"}, {"de", 512, "1 2"}, {"de-AT", 0, "1 2"}, {"en", 0, "2"}, {"en", 512, "2"}} {
		t.Run(fmt.Sprintf("%s, %d more", test.language, test.more), func(t *testing.T) {
			t.Parallel()
			concepts := `{"code":"1","display":"Kniegelenkschmerz"},{"code":"2","display":"Schmerz am Knie"},{"code":"3","display":"Gelenkersatz"},{"code":"4","display":"Gelenk"}`
			for i := range test.more {
				concepts += fmt.Sprintf(`,{"code":"x%d","display":"anderes"}`, i)
			}
			file := filepath.Join(t.TempDir(), "cs.json")
			fixture.WriteFile(t, file, []byte(`{"resourceType":"CodeSystem","url":"http://x/cs","valueSet":"http://x/all","content":"complete","language":"`+test.language+`","concept":[`+concepts+`]}`))
			l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}})
			if err != nil {
				t.Fatal(err)
			}
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "schmerz knie"), test.want)
			w := buildFullExpansion(t, &api.Handler{Library: l}, new(expansion.FullExpansionBuilder), 1000, "url", "http://x/all", "displayLanguage", test.language)
			if got := strings.Join(fullExpansionPage(t, w, expansion.Page{Filter: "schmerz knie"}).Codes(), " "); got != test.want {
				t.Errorf("fetched whole: got %q, want %q", got, test.want)
			}
		})
	}
}

// loadWeighted loads resources and files that contain weights. It returns the library and the log.
func loadWeighted(t *testing.T, resources []string, files ...string) (l *terminology.Library, log string, err error) {
	t.Helper()
	folder := t.TempDir()
	var o definitions.Options
	for i, resource := range resources {
		o.Definitions = append(o.Definitions, filepath.Join(folder, fmt.Sprintf("%03d.json", i)))
		fixture.WriteFile(t, o.Definitions[i], []byte(resource))
	}
	for i, file := range files {
		if file != definitions.DefinitionWeights {
			name := filepath.Join(folder, fmt.Sprintf("%d.csv", i))
			fixture.WriteFile(t, name, []byte(file))
			file = name
		}
		o.Weights = append(o.Weights, file)
	}
	var text bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&text, nil))
	l, err = terminology.Load(t.Context(), o)
	return l, text.String(), err
}

// fevers returns a code system with n concepts that match "fever" equally well. The first concept is abstract.
func fevers(url string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"resourceType":"CodeSystem","url":%q,"content":"complete","concept":[
		{"code":"0","display":"Fever","property":[{"code":"notSelectable","valueBoolean":true}]}`, url)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,{"code":"%d","display":"Fever n%d"`, i, i)
		if i == 3 {
			b.WriteString(`,"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":1.5}]`)
		}
		b.WriteString(`}`)
	}
	return b.String() + `]}`
}

// TestWeights checks that matches are sorted by weight in scanned and indexed code systems.
func TestWeights(t *testing.T) {
	t.Parallel()
	for _, n := range []int{6, 600} {
		own := fixture.ValueSet("http://x/own", `{"include":[{"system":"http://x/cs"}]}`)
		listing := fixture.ValueSet("http://x/listing", `{"include":[{"system":"http://x/cs","concept":[{"code":"1"},{"code":"2"},{"code":"3"},
			{"code":"4","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":9}]}]},
			{"system":"http://x/elsewhere","concept":[{"code":"a","display":"Fever n1"},{"code":"b","display":"Fever n1"}]}]}`)
		supplement := `{"resourceType":"CodeSystem","url":"http://x/used","content":"supplement","supplements":"http://x/cs","concept":[
			{"code":"5","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":7}]}]}`
		all := fixture.AllCodesOf("http://x/cs")
		for _, test := range []struct {
			name, of, query string
			files           []string
			want            string
		}{
			{"none", "http://x/cs-all", "", nil, "1 2 3"},
			{"of the code system", "http://x/cs-all", "", []string{"#! http://x/cs\n2,5\n5,70\n0,900\n"}, "5 2 1"},
			{"in another value set", "http://x/own", "", []string{"#! http://x/cs\n2,5\n5,70\n"}, "5 2 1"},
			{"of several files", "http://x/cs-all", "", []string{"#! http://x/cs\n2,5\n5,70\n", "#! http://x/cs\n2,70\n"}, "2 5 1"},
			{"of the value set", "http://x/own", "", []string{"#! http://x/own\n4,5\n3,4\n#! http://x/cs\n5,70\n"}, "4 3 1"},
			{"of another value set", "http://x/cs-all", "", []string{"#! http://x/own\n4,5\n3,4\n"}, "1 2 3"},
			{"of the definitions", "http://x/cs-all", "", []string{definitions.DefinitionWeights}, "3 1 2"},
			{"of the definitions, not requested", "http://x/cs-all", "", []string{"#! http://x/other\n1,2\n"}, "1 2 3"},
			{"a file before the definitions", "http://x/cs-all", "", []string{definitions.DefinitionWeights, "#! http://x/cs\n4,1\n"}, "4 1 2"},
			{"of a value set that lists", "http://x/listing", "", []string{definitions.DefinitionWeights}, "4 3 a b"},
			{"of codes of a missing code system", "http://x/listing", "", []string{"#! http://x/elsewhere\nb,2\n"}, "b a 1"},
			{"of the value set, with a missing code system", "http://x/listing", "", []string{"#! http://x/listing\nb,2\n2,4\n"}, "2 b a"},
			{"of a supplement", "http://x/own", "http://x/used", []string{definitions.DefinitionWeights}, "5 3 1"},
		} {
			t.Run(fmt.Sprint(n, test.name), func(t *testing.T) {
				t.Parallel()
				l, _, err := loadWeighted(t, []string{fevers("http://x/cs", n), all, own, listing, supplement}, test.files...)
				if err != nil {
					t.Fatal(err)
				}
				pairs := []string{"url", test.of, "filter", "fever n", "count", fmt.Sprint(len(strings.Fields(test.want)))}
				if test.query != "" {
					pairs = append(pairs, "useSupplement", test.query)
				}
				terminologytest.WantCodes(t, terminologytest.Expand(t, l, pairs...), test.want)
				if l, err = l.WithResources(); err != nil {
					t.Fatal(err)
				}
				terminologytest.WantCodes(t, terminologytest.Expand(t, l, pairs...), test.want)
			})
		}
	}
}

// TestWeightsOfARequest checks that weights apply to a code system that is sent with the request.
func TestWeightsOfARequest(t *testing.T) {
	t.Parallel()
	l, _, err := loadWeighted(t, []string{fixture.AllCodesOf("http://x/cs")}, "#! http://x/cs\n2,5\n")
	if err != nil {
		t.Fatal(err)
	}
	if l, err = l.WithResources(jsontext.Value(fevers("http://x/cs", 4))); err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/cs-all", "filter", "fever n"), "2 1 3")
}

// TestWeightsAreChecked checks the log messages and errors caused by invalid weights.
func TestWeightsAreChecked(t *testing.T) {
	t.Parallel()
	resources := []string{fevers("http://x/cs", 4), fixture.AllCodesOf("http://x/cs")}
	for _, test := range []struct{ name, file, log, err string }{
		{"all there", "#! http://x/cs\n2,5\n#! http://x/cs-all\n1,2\n", "", ""},
		{"codes that are not there", "#! http://x/cs\n2,5\nx,5\ny,7\n", `url=http://x/cs codes=2 weights=3`, ""},
		{"not in the value set", "#! http://x/cs-all\n2,5\nx,5\n", `url=http://x/cs-all codes=1 weights=2`, ""},
		{"nothing of this url", "#! http://x/no\n2,5\n", `url=http://x/no`, ""},
		{"no count", "#! http://x/cs\n2,five\n", "", "0.csv: line 2: the count"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, log, err := loadWeighted(t, resources, test.file)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if strings.Count(log, "level=WARN") != min(len(test.log), 1) || !strings.Contains(log, test.log) {
				t.Errorf("logged %q, want %q", log, test.log)
			}
		})
	}
	if _, err := terminology.Load(t.Context(), definitions.Options{Weights: []string{filepath.Join(t.TempDir(), "gone.csv")}}); err == nil || !strings.Contains(err.Error(), "gone.csv") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestWeightsChange checks that a weights file is reloaded after a change.
func TestWeightsChange(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	o := definitions.Options{Definitions: []string{filepath.Join(folder, "cs.json"), filepath.Join(folder, "vs.json")}, Weights: []string{filepath.Join(folder, "w.csv")}}
	fixture.WriteFile(t, o.Definitions[0], []byte(fevers("http://x/cs", 4)))
	fixture.WriteFile(t, o.Definitions[1], []byte(fixture.AllCodesOf("http://x/cs")))
	fixture.WriteFile(t, o.Weights[0], []byte("#! http://x/cs\n2,5\n"))
	w, err := terminology.NewWatch(t.Context(), o, 0)
	if err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, w.Current(), "url", "http://x/cs-all", "filter", "fever n"), "2 1 3")
	fixture.WriteFile(t, o.Weights[0], []byte("#! http://x/cs\n3,10\n"))
	if err := w.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, w.Current(), "url", "http://x/cs-all", "filter", "fever n"), "3 1 2")
}

// laymen is a concept map from lay terms to the code system in medicine.
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

// loadLaymen loads medicine and a concept map. The concept map is one of the definitions or, if inFile is true, a separate
// file. Its path replaces NAMED in synonyms.
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
		fixture.WriteFile(t, file, []byte(text))
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
			{"the filter itself matches too", "broken wrist", "7 2"},
			{"a broader term does not find narrower terms", "fracture of forearm", "2"},
			{"narrower", "gastric ulcer", "3 8"},
			{"back to a narrower term", "stomach trouble", "8"},
			{"R5", "heart attack", "4"},
			{"R5, wider", "bruised rib", "5"},
			{"an inflection", "heart attacks", "4"},
			{"a relation that is not known", "faint", ""},
			{"a target that depends on more", "weak", ""},
		} {
			t.Run(name+": "+test.name, func(t *testing.T) {
				t.Parallel()
				terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", test.filter), test.want)
			})
		}
	}
}

// TestConceptMapInALanguage checks that the synonyms of a concept map apply only in the language of the concept map.
func TestConceptMapInALanguage(t *testing.T) {
	t.Parallel()
	l, err := loadLaymen(t, strings.Replace(laymen, `"status"`, `"language":"de","status"`, 1), false, "http://x/laymen")
	if err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "sugar disease"), "")
}

// TestConceptMapBackToLay checks that a concept map to lay terms adds the equivalent ones as synonyms.
func TestConceptMapBackToLay(t *testing.T) {
	t.Parallel()
	turned := strings.NewReplacer(`"source":"http://x/lay","target":"http://x/cs"`, `"source":"http://x/cs","target":"http://x/lay"`, `"code":"sugar","display":"Sugar disease"`, `"code":"1"`,
		`{"code":"1","equivalence":"equivalent"}`, `{"code":"sugar","display":"Honey urine","equivalence":"equivalent"}`).Replace(laymen)
	l, err := loadLaymen(t, turned, false, "http://x/laymen")
	if err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "honey urine"), "1")
}

// TestConceptMapsThatMakeNoSynonyms checks that errors describe the problem and where it is.
func TestConceptMapsThatMakeNoSynonyms(t *testing.T) {
	t.Parallel()
	const empty = `{"resourceType":"ConceptMap","url":"http://x/laymen","group":[{"source":"http://x/a","target":"http://x/b","element":[%s]}]}`
	var many strings.Builder
	for i := range 50_001 {
		fmt.Fprintf(&many, `{"code":"%d","display":"lay%d","target":[{"code":"%d","display":"term%d","equivalence":"equal"}]},`, i, i, i, i)
	}
	for _, test := range []struct{ name, conceptMap, synonyms, want string }{
		{"no such canonical", laymen, "http://x/other", "no ConceptMap found with this canonical"},
		{"no such version", laymen, "http://x/laymen|2", "no ConceptMap found with this canonical"},
		{"no such file", laymen, "NAMED.json", "no such file"},
		{"another resource", medicine, "NAMED", "no ConceptMap"},
		{"no JSON", "htn = hypertension", "NAMED", "map.json"},
		{"nothing in it", fmt.Sprintf(empty, ""), "NAMED", "yields no synonyms"},
		{"no displays", fmt.Sprintf(empty, `{"code":"1","target":[{"code":"2","equivalence":"equal"}]}`), "NAMED", "yields no synonyms"},
		{"the same displays", fmt.Sprintf(empty, `{"code":"1","display":"Flu","target":[{"code":"2","display":"flu","equivalence":"equal"}]}`), "NAMED", "yields no synonyms"},
		{"too much in it", fmt.Sprintf(empty, strings.TrimSuffix(many.String(), ",")), "NAMED", "yields more than 100000 synonyms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := loadLaymen(t, test.conceptMap, true, test.synonyms); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "synonyms in ") {
				t.Errorf("got %v", err)
			}
		})
	}
}
