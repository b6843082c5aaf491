package documents

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

var (
	optionInSource = regexp.MustCompile(`(?:\n\t+|Block\{)"([a-z_]+)":\s`)
	codeSpan       = regexp.MustCompile("`[^`\n]+`")
	optionInTable  = regexp.MustCompile("\n\\| `([a-z_]+)[^`]*`")
)

// The reference that the README leads to names every word of the Caddyfile that is
// ours, and its tables begin their rows with no other.
func TestREADMENamesOptions(t *testing.T) {
	t.Parallel()
	text := gatewaytest.ReadFile(t, "../../docs/caddyfile.md")
	reference := text
	spans := strings.Join(codeSpan.FindAllString(strings.ReplaceAll(reference, "```", ""), -1), " ")
	options := optionsOfSource(t)
	if len(options) < 60 {
		t.Errorf("%d options: %q", len(options), options)
	}
	for _, option := range options {
		if !regexp.MustCompile(`\b` + option + `\b`).MatchString(spans) {
			t.Errorf("docs/caddyfile.md does not name %s", option)
		}
	}
	rows := optionInTable.FindAllStringSubmatch(reference, -1)
	if len(rows) < 100 {
		t.Errorf("%d rows for %d options", len(rows), len(options))
	}
	for _, row := range rows {
		if !slices.Contains(options, row[1]) {
			t.Errorf("docs/caddyfile.md has %s, which is no option", row[1])
		}
	}
}

func optionsOfSource(t *testing.T) (options []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if source := gatewaytest.ReadFile(t, path); strings.Contains(source, "Block{") {
			for _, found := range optionInSource.FindAllStringSubmatch(source, -1) {
				options = append(options, found[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(options)
	return slices.Compact(options)
}
