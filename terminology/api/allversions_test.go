package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// R4 ValueSet.compose.include.version: "The version of the code system that the codes are selected from, or the special
// version '*' for all versions."
func TestAllVersions(t *testing.T) {
	dated := strings.Replace(versionedSystem("http://x/cs", "3", "complete", "d"), `"status"`, `"date":"2026","status"`, 1)
	of := func(version, more string) string {
		return fmt.Sprintf(`{"system":"http://x/cs","version":%q%s}`, version, more)
	}
	compose := map[string]string{
		"all": `{"include":[` + of("*", "") + `]}`, "listed": `{"include":[` + of("*", `,"concept":[{"code":"a"},{"code":"d"}]`) + `]}`,
		"filtered":   `{"include":[` + of("*", `,"filter":[{"property":"code","op":"regex","value":"[ab]"}]`) + `]}`,
		"but":        `{"include":[` + of("*", "") + `],"exclude":[` + of("2", "") + `]}`,
		"none":       `{"include":[` + of("1", "") + `],"exclude":[` + of("*", "") + `]}`,
		"locked":     `{"lockedDate":"2025-01-01","include":[` + of("*", "") + `]}`,
		"empty":      `{"include":[{"system":"http://x/gone","version":"*"}]}`,
		"gone":       `{"include":[{"system":"http://x/gone","version":"*","concept":[{"code":"a"}]}]}`,
		"imports":    `{"include":[{"valueSet":["http://x/all"]}]}`,
		"everything": `{"include":[` + of("*", "") + `,{"system":"http://x/other"}]}`,
	}
	definitions := []string{versionedSystem("http://x/cs", "1", "complete", "a b"), versionedSystem("http://x/cs", "2", "complete", "b c"), dated,
		versionedSystem("http://x/cs", "9", "not-present", ""), versionedSystem("http://x/other", "1", "complete", "z")}
	for name, c := range compose {
		definitions = append(definitions, valueSetOf("http://x/"+name, c))
	}
	h := &Handler{Library: libraryOf(t, definitions...)}
	tests := []struct {
		name  string
		pairs []string
		want  string // code|version
	}{
		{"all", nil, "d|3 b|2 c|2 a|1 b|1"},
		{"all", []string{"versionsMatch", "true"}, "d|3 b|2 c|2 a|1"},
		{"all", []string{"date", "2020"}, "b|2 c|2 a|1 b|1"},
		{"all", []string{"force-system-version", "http://x/cs|2"}, "b|2 c|2"},
		{"all", []string{"exclude-system", "http://x/cs|2"}, "d|3 a|1 b|1"},
		{"listed", nil, "d|3 a|1"},
		{"filtered", nil, "b|2 a|1 b|1"},
		{"but", nil, "d|3 a|1 b|1"},
		{"none", nil, ""},
		{"locked", nil, "b|2 c|2 a|1 b|1"},
		{"gone", nil, "a"},
		{"imports", nil, "d|3 b|2 c|2 a|1 b|1"},
		{"everything", nil, "d|3 b|2 c|2 a|1 b|1 z|1"},
	}
	for _, test := range tests {
		got := expandWith(t, h, append([]string{"url", "http://x/" + test.name}, test.pairs...)...)
		var codes []string
		for _, c := range got.Expansion.Contains {
			codes = append(codes, outcome.Canonical(c.Code, c.Version))
		}
		if want := strings.Fields(test.want); !slices.Equal(codes, want) {
			t.Errorf("%s %q: got %q, want %q", test.name, test.pairs, codes, want)
		}
	}
	if e := refused(t, h.Library, "url", "http://x/empty"); e.Missing[0].Canonical != "http://x/gone" {
		t.Errorf("not here in any version: got %v", e)
	}
	for query, want := range map[string]bool{"code=a": true, "code=c": true, "code=d": true, "code=e": false, "code=a&systemVersion=1": true, "code=a&systemVersion=2": false} {
		w, _ := call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/all&system=http://x/cs&"+query, "")
		if got := readValidated(t, w.Body.Bytes()); got.result != want {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}
