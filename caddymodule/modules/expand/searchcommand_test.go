package expand

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// searched are definitions to search in.
const searched = `{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"CodeSystem","url":"http://x/cs","version":"1","language":"en","content":"complete",
	"property":[{"code":"notSelectable","type":"boolean"}],"concept":[
	{"code":"22","display":"Myocardial infarction","designation":[{"language":"en","value":"Heart attack"},{"language":"de","value":"Herzinfarkt"}],"concept":[
		{"code":"221","display":"Anterior myocardial infarction","designation":[{"language":"en","value":"Anterior heart attack"}]}]},
	{"code":"30","display":"Heart diseases","property":[{"code":"notSelectable","valueBoolean":true}]},
	{"code":"31","display":"Heart disease, and attack of fear"}]}},
	{"resource":{"resourceType":"ValueSet","url":"http://x/both","status":"active","compose":{"include":[{"system":"http://x/cs"},
		{"system":"http://x/other","concept":[{"code":"h","display":"Heart"}]}]}}}]}`

// searchSite is a configuration to search with.
func searchSite(t *testing.T, options string) string {
	t.Helper()
	definitions := gatewaytest.WriteFile(t, "definitions.json", searched)
	synonyms := gatewaytest.WriteFile(t, "synonyms.txt", "mi => myocardial infarction\n")
	return gatewaytest.WriteFile(t, "Caddyfile", "localhost {\n\thandle /fhir/* {\n\t\tfhir_expand {\n\t\t\tcore off\n\t\t\tdefinitions "+definitions+
		"\n\t\t\tsynonyms "+synonyms+"\n\t\t\t"+options+"\n\t\t}\n\t}\n}\n")
}

func TestSearchCommand(t *testing.T) {
	t.Parallel()
	site := searchSite(t, "")
	for _, test := range []struct {
		name          string
		url, language string
		words         string
		count         int
		want          string
	}{
		{"designations", "http://x/cs", "", "heart attack", 10, `
3 of 3 found

has all words as whole words, in the head of a text
1  22   Myocardial infarction              has "Heart attack" (en)
2  221  Anterior myocardial infarction     is more special; has "Anterior heart attack" (en)

has all words as whole words
3  31   Heart disease, and attack of fear
`},
		{"the first only", "http://x/cs?fhir_vs", "", "heart attack", 1, `
1 of 3 found

has all words as whole words, in the head of a text
1  22  Myocardial infarction  has "Heart attack" (en)
`},
		{"in a language", "http://x/cs|1", "de", "herzinfarkt", 10, `
1 of 1 found

has the display that is typed, and can be chosen
1  22  Herzinfarkt
`},
		{"synonyms", "http://x/cs", "", "mi ant", 10, `
1 of 1 found

has words that begin so, in the head of a text, or whole words
1  221  Anterior myocardial infarction  by the synonym "myocardial infarction"
`},
		{"a misspelling", "http://x/cs", "", "infrction", 10, `
infrction is nowhere, and was read as infarction
2 of 2 found

has all words as whole words, in the head of a text
1  22   Myocardial infarction
2  221  Anterior myocardial infarction  is more special
`},
		{"several code systems", "http://x/both", "", "heart dis", 10, `
2 of 2 found

has words that begin so, in the head of a text, or whole words
1  31  Heart disease, and attack of fear
2  30  Heart diseases                     cannot be chosen
`},
		{"codes of several", "http://x/both", "", "heart", 2, `
2 of 5 found

has the display that is typed, and can be chosen
1  http://x/other|h  Heart

has all words as whole words, in the head of a text
2  http://x/cs|22    Myocardial infarction  has "Heart attack" (en)
`},
		{"nothing", "http://x/cs", "", "kidney", 10, `
Nothing was found.
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := conceptSearch{out: &out, url: test.url, words: test.words, count: test.count, language: test.language}
			if err := s.run(t.Context(), site, ""); err != nil || out.String() != test.want[1:] {
				t.Errorf("%v; got\n%swant%s", err, &out, test.want)
			}
		})
	}
}

// The first handler that has the value set answers.
func TestSearchCommandWithSeveralHandlers(t *testing.T) {
	t.Parallel()
	definitions := gatewaytest.WriteFile(t, "definitions.json", searched)
	site := gatewaytest.WriteFile(t, "Caddyfile", "a.example {\n\tfhir_expand {\n\t\tcore off\n\t}\n\tfhir_expand {\n\t\tcore off\n\t}\n}\nb.example {\n\tfhir_expand {\n\t\tcore off\n\t\tdefinitions "+definitions+"\n\t}\n}\n")
	if handlers, err := configuredExpands(site, ""); err != nil || len(handlers) != 2 {
		t.Errorf("%d handlers, %v", len(handlers), err)
	}
	var out strings.Builder
	s := conceptSearch{out: &out, url: "http://x/cs", words: "fear", count: 1}
	if err := s.run(t.Context(), site, ""); err != nil || !strings.Contains(out.String(), "1  31  Heart disease, and attack of fear") {
		t.Errorf("%v, %s", err, &out)
	}
}

func TestSearchCommandRefused(t *testing.T) {
	t.Parallel()
	site := searchSite(t, "")
	for _, test := range []struct {
		name       string
		config     string
		url, words string
		count      int
		want       string
	}{
		{"no such value set", site, "http://elsewhere/vs", "heart", 10, "value set not known: the definitions have neither a value set nor a code system http://elsewhere/vs, at " + site + ":3"},
		{"a typing error", site, "http://x/ccs", "heart", 10, "did you mean http://x/cs?"},
		{"no words", site, "http://x/cs", " ", 10, "no words"},
		{"too many words", site, "http://x/cs", strings.Repeat("heart ", 21), 10, "at most 20 words"},
		{"no codes", site, "http://x/cs", "heart", 0, "--count must be 1 to 1000"},
		{"too many codes", site, "http://x/cs", "heart", 1001, "--count must be 1 to 1000"},
		{"no configuration", "", "http://x/cs", "heart", 10, "--config"},
		{"no such configuration", "/nowhere/Caddyfile", "http://x/cs", "heart", 10, "/nowhere"},
		{"no handler", gatewaytest.WriteFile(t, "Caddyfile", "localhost\n"), "http://x/cs", "heart", 10, "there is no fhir_expand"},
		{"no definitions", gatewaytest.WriteFile(t, "Caddyfile", "localhost {\n\tfhir_expand {\n\t\tdefinitions /nowhere.json\n\t}\n}\n"), "http://x/cs", "heart", 10, "/nowhere.json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := conceptSearch{out: new(strings.Builder), url: test.url, words: test.words, count: test.count}
			err := s.run(t.Context(), test.config, "")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if unknown := strings.Contains(test.want, "not known"); unknown && !errors.Is(err, outcome.ErrUnknown) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The example in docs/terminology.md is what the command shows.
func TestSearchCommandInDocuments(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "terminology.md"))
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```\n\\$ ./caddy fhir-search (\\S+) ([^\n]+)\n(.*?)```").FindStringSubmatch(string(page))
	if example == nil {
		t.Fatal("docs/terminology.md has no example")
	}
	var out strings.Builder
	s := conceptSearch{out: &out, url: example[1], words: example[2], count: 10}
	if err := s.run(t.Context(), gatewaytest.WriteFile(t, "Caddyfile", "localhost {\n\tfhir_expand\n}\n"), ""); err != nil || out.String() != example[3] {
		t.Errorf("%v; got\n%swant\n%s", err, &out, example[3])
	}
}
