package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// README's walk-through is run as it stands there, but at another port, and must
// print what stands there, but for what is different each time. The records are
// the example's own.
func TestReadmeWalkthrough(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## A walk-through with curl\n")
	section, _, ends := strings.Cut(section, "\n## ")
	if !found || !ends {
		t.Fatal("README.md has no walk-through")
	}
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
	alone(t, "the walk-through trusts Caddy's own CA")
	g, folder := ownGateway(t, "gateway-readme", ""), t.TempDir()
	_, port, _ := strings.Cut(strings.TrimPrefix(g.issuer, "https://"), ":")
	for range 2 { // whoever has signed in tries again
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(strings.Join(script, "\n"), "8443", port))
		command.Dir = folder
		command.Env = append(append(command.Environ(), g.environ...), "TMPDIR="+folder)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		got := lasting(regexp.MustCompile(`localhost(:|%3A)`+port).ReplaceAllString(string(output), "localhost${1}8443"))
		for _, want := range printed {
			if !strings.Contains(got, lasting(want)) {
				t.Errorf("README prints\n%s\nbut it is\n%s", lasting(want), got)
			}
		}
	}
}

// lasting replaces what is different at each run.
func lasting(text string) string {
	for pattern, name := range map[string]string{
		`code=[A-Za-z0-9_-]+`:    "code=CODE",
		`"eyJ[A-Za-z0-9_.-]+…?"`: `"JWT"`,
		`"timestamp":"[^"]+"`:    `"timestamp":"T"`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, name)
	}
	return text
}
