package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

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
	wantCodes(t, expand(t, l, "url", "http://x/all", "filter", "htn"), "1")
	wantCodes(t, expand(t, l, "url", "http://x/all", "filter", "renal dis"), "2")
	if l, err = l.With(); err != nil {
		t.Fatal(err)
	}
	wantCodes(t, expand(t, l, "url", "http://x/all", "filter", "htn"), "1")
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
	w := gather(t, &Handler{Library: l}, new(expansion.WholeBuilder), 100, "url", "http://x/all")
	for _, filter := range []string{"htn", "renal dis", "niere", "kidney"} {
		for name, synonyms := range map[string]*textindex.Synonyms{"with": l.Synonyms(), "without": nil} {
			body, err := w.Expand(expansion.Page{Filter: filter}, synonyms, 100)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if synonyms != nil || filter == "kidney" {
				want = strings.Join(expand(t, l, "url", "http://x/all", "filter", filter).codes(), " ")
			}
			var got expanded
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if codes := strings.Join(got.codes(), " "); codes != want {
				t.Errorf("%s synonyms, %q: got %q, want %q", name, filter, codes, want)
			}
		}
	}
	german := gather(t, &Handler{Library: l}, new(expansion.WholeBuilder), 100, "url", "http://x/all", "displayLanguage", "de")
	body, err := german.Expand(expansion.Page{Filter: "niere"}, l.Synonyms(), 100)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, string(body), `"code":"2"`)
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
	got := expand(t, l, "url", "http://x/all", "filter", "hypretension")
	wantCodes(t, got, "1")
	if parameters := strings.Join(got.parameters(), " "); !strings.Contains(parameters, "corrected-filter=hypertension") {
		t.Errorf("parameters %s", parameters)
	}
	got = expand(t, l, "url", "http://x/all", "filter", "hypert")
	if parameters := strings.Join(got.parameters(), " "); strings.Contains(parameters, "corrected-filter") {
		t.Errorf("parameters %s", parameters)
	}
}
