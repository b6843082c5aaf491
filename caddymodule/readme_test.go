package caddymodule

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	optionInSource = regexp.MustCompile(`(?:\n\t+|subdirectives\{)"([a-z_]+)":\s`)
	codeSpan       = regexp.MustCompile("`[^`\n]+`")
	optionInTable  = regexp.MustCompile("\n\\| `([a-z_]+)[^`]*`")
)

// The README names every word of the Caddyfile that is ours, and its tables begin
// their rows with no other.
func TestREADMENamesOptions(t *testing.T) {
	text, err1 := os.ReadFile("../README.md")
	audit, err2 := os.ReadFile("../docs/audit.md") // the log format's
	cache, err3 := os.ReadFile("../docs/cache.md") // those of asking others
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	readme := string(text) + string(audit) + string(cache)
	spans := strings.Join(codeSpan.FindAllString(strings.ReplaceAll(readme, "```", ""), -1), " ")
	options := optionsOfSource(t)
	if len(options) < 60 {
		t.Errorf("%d options: %q", len(options), options)
	}
	for _, option := range options {
		if !regexp.MustCompile(`\b` + option + `\b`).MatchString(spans) {
			t.Errorf("it does not name %s", option)
		}
	}
	for _, row := range optionInTable.FindAllStringSubmatch(string(text), -1) {
		if directive := strings.HasPrefix(row[1], "fhir_"); !directive && !slices.Contains(options, row[1]) {
			t.Errorf("the README has %s, which is no option", row[1])
		}
	}
}

func optionsOfSource(t *testing.T) (options []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(string(source), "subdirectives{") {
			continue
		}
		for _, found := range optionInSource.FindAllStringSubmatch(string(source), -1) {
			options = append(options, found[1])
		}
	}
	slices.Sort(options)
	return slices.Compact(options)
}
