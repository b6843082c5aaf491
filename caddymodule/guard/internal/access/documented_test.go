package access

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentedRules compares the table of docs/guard.md with the rules, and with the types that have them by default.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| rule | types | a bound scope covers |\n")
	if table, _, _ = strings.Cut(table, "\n\n"); !found {
		t.Fatal("docs/guard.md has no table of rules")
	}
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		documented[row[1]] = strings.Split(row[2], ", ")
	}
	actual := map[string][]string{"patient": {"none by default"}, "closed": {"all other types"}}
	for _, of := range slices.Sorted(maps.Keys(defaultShared)) {
		actual[defaultShared[of].name] = append(actual[defaultShared[of].name], of)
	}
	for _, name := range RuleNames() {
		if got, want := documented[name], actual[name]; !slices.Equal(got, want) {
			t.Errorf("the page has %q for %s, want %q", got, name, want)
		}
	}
	if len(documented) != len(RuleNames()) {
		t.Errorf("the page has the rules %q, want %q", slices.Sorted(maps.Keys(documented)), RuleNames())
	}
}
