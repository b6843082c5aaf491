package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// TestSearchResourceTypes has what FHIR itself writes without spaces: every display with such a part is found.
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

// TestSearchSupplement has the texts of supplements, and where they count: found as any text is, and in its tier.
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
		{"in the language asked for", all, "knoch", "http://x/more", "de", "3 1"},
		{"not in another", all, "knoch", "http://x/more", "fr", ""},
		{"in no language", all, "os", "http://x/more", "fr", "3"},
		{"the head of a text", all, "hart knochen", "http://x/more", "de", "3"},
		{"what is shown, one letter", all, "k", "http://x/more", "de", "3"},
		{"with a word of the code system", all, "bone knoch", "http://x/more", "", "3"},
		{"a display", all, "hueso", "http://x/es", "", "3"},
		{"a display in its language", all, "hueso", "http://x/es", "es", "3"},
		{"a display in another, as that of the code system", all, "hueso", "http://x/es", "fr", "3"},
		{"a language pack, which needs no name", all, "bot", "", "nl", "3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, concepts := range []int{3, 600} {
				l := terminologytest.Library(t, fixture.Limbs(concepts), fixture.AllOf("http://x/limbs"), more, spanish, pack, named(of, `{"include":[{"system":"http://x/limbs"}]}`),
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

// TestSearchBackwards has a long list in another order than that of the code system: equals keep it.
func TestSearchBackwards(t *testing.T) {
	var list, want []string
	for i := 600; i > 3; i-- {
		list = append(list, fmt.Sprintf(`{"code":"%d"}`, i))
		want = append(want, fmt.Sprint(i))
	}
	l := terminologytest.Library(t, fixture.Limbs(600), fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/limbs","concept":[`+strings.Join(list, ",")+`]}]}`))
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(want, " "))
}

// TestSearchTwoRuns has the later concepts of a code system first, and then the others.
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

// loadWith loads a code system with lists of synonyms.
func loadWith(t *testing.T, synonyms ...string) (*terminology.Library, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cs.json")
	if err := os.WriteFile(file, []byte(`{"resourceType":"CodeSystem","url":"http://x/cs","valueSet":"http://x/all","content":"complete",
		"concept":[{"code":"1","display":"Hypertension"},{"code":"2","display":"Kidney disease"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}, Synonyms: synonyms})
}

// TestSynonyms has the built-in list, and one of one's own.
func TestSynonyms(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(words, []byte("renal => kidney\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := loadWith(t, definitions.EnglishSynonyms, words)
	if err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "htn"), "1")
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "renal dis"), "2")
	if l, err = l.With(); err != nil {
		t.Fatal(err)
	}
	terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "htn"), "1")
}

// TestSynonymsOfWhole has what is fetched whole find what is found here.
func TestSynonymsOfWhole(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(words, []byte("renal => kidney\n#! de\nniere => kidney\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := loadWith(t, definitions.EnglishSynonyms, words)
	if err != nil {
		t.Fatal(err)
	}
	w := gather(t, &api.Handler{Library: l}, new(expansion.WholeBuilder), 100, "url", "http://x/all")
	for _, filter := range []string{"htn", "renal dis", "niere", "kidney"} {
		for name, synonyms := range map[string]*textindex.Synonyms{"with": l.Synonyms(), "without": nil} {
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
	german := gather(t, &api.Handler{Library: l}, new(expansion.WholeBuilder), 100, "url", "http://x/all", "displayLanguage", "de")
	body, err := german.Expand(expansion.Page{Filter: "niere"}, l.Synonyms(), 100)
	if err != nil {
		t.Fatal(err)
	}
	fixture.WantText(t, string(body), `"code":"2"`)
}

// TestSynonymsThatCannotBeRead names the file and the line.
func TestSynonymsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	words := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(words, []byte("a => b\nhtn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{words, words + "x"} {
		if _, err := loadWith(t, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCorrectedFilter tells how a misspelled word was read.
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

// TestGermanCompounds has compounds found by their parts: where concepts are scanned, where they are indexed, and in what
// is fetched whole; and only in German.
func TestGermanCompounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		language string
		more     int // concepts
		want     string
	}{{"de", 0, "1 2"}, {"de", 512, "1 2"}, {"de-AT", 0, "1 2"}, {"en", 0, "2"}, {"en", 512, "2"}} {
		t.Run(fmt.Sprintf("%s, %d more", test.language, test.more), func(t *testing.T) {
			t.Parallel()
			concepts := `{"code":"1","display":"Kniegelenkschmerz"},{"code":"2","display":"Schmerz am Knie"},{"code":"3","display":"Gelenkersatz"},{"code":"4","display":"Gelenk"}`
			for i := range test.more {
				concepts += fmt.Sprintf(`,{"code":"x%d","display":"anderes"}`, i)
			}
			file := filepath.Join(t.TempDir(), "cs.json")
			if err := os.WriteFile(file, []byte(`{"resourceType":"CodeSystem","url":"http://x/cs","valueSet":"http://x/all","content":"complete","language":"`+test.language+`","concept":[`+concepts+`]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{file}})
			if err != nil {
				t.Fatal(err)
			}
			terminologytest.WantCodes(t, terminologytest.Expand(t, l, "url", "http://x/all", "filter", "schmerz knie"), test.want)
			w := gather(t, &api.Handler{Library: l}, new(expansion.WholeBuilder), 1000, "url", "http://x/all", "displayLanguage", test.language)
			if got := strings.Join(fromWhole(t, w, expansion.Page{Filter: "schmerz knie"}).Codes(), " "); got != test.want {
				t.Errorf("fetched whole: got %q, want %q", got, test.want)
			}
		})
	}
}
