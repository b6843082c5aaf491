package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestGuideTry runs the commands in docs/start/try.md, changing only the port. Each command must print the output on the page,
// except for values that change with each run. The records are those of the example.
func TestGuideTry(t *testing.T) {
	section := readGuide(t, "start/try").section(t, "With curl").text
	var script, printed []string
	for _, block := range regexp.MustCompile("(?s)```(\\w*)\n(.*?)```").FindAllStringSubmatch(section, -1) {
		if block[1] == "sh" {
			script = append(script, block[2])
		} else {
			printed = append(printed, strings.TrimSpace(block[2]))
		}
	}
	if len(script) < 5 || len(printed) < 5 {
		t.Fatalf("the walk-through has %d commands and %d answers", len(script), len(printed))
	}
	skipOnReplicas(t, "the walk-through trusts Caddy's own CA")
	g, folder := startTestGateway(t, "guide-try", ""), t.TempDir()
	_, port, _ := strings.Cut(strings.TrimPrefix(g.issuer, "https://"), ":")
	for range 2 { // in the second run, the user is already signed in
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(strings.Join(script, "\n"), "8443", port))
		command.Dir = folder
		command.Env = append(append(command.Environ(), g.environ...), "TMPDIR="+folder)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		got := maskChangingValues(regexp.MustCompile(`localhost(:|%3A)`+port).ReplaceAllString(string(output), "localhost${1}8443"))
		for _, want := range printed {
			if !strings.Contains(got, maskChangingValues(want)) {
				t.Errorf("the page has the output\n%s\nbut the commands print\n%s", maskChangingValues(want), got)
			}
		}
	}
}

// maskChangingValues replaces the values that change with each run.
func maskChangingValues(text string) string {
	for pattern, name := range map[string]string{
		`code=[A-Za-z0-9_-]+`:    "code=CODE",
		`"eyJ[A-Za-z0-9_.-]+…?"`: `"JWT"`,
		`"timestamp":"[^"]+"`:    `"timestamp":"T"`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, name)
	}
	return text
}
