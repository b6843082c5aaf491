package documents

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
)

// exampleCaddyfiles returns the complete configurations in docs/examples by path, with generated secrets.
func exampleCaddyfiles(t *testing.T) map[string]string {
	t.Helper()
	secret := regexp.MustCompile(`\{file\.[^}]+\}`)
	files, err := filepath.Glob("../../docs/examples/*/Caddyfile")
	composed, composeErr := filepath.Glob("../../docs/examples/compose/*/Caddyfile")
	if err != nil || composeErr != nil || len(files) == 0 || len(composed) == 0 {
		t.Fatalf("examples %q and %q: %v, %v", files, composed, err, composeErr)
	}
	read := map[string]string{}
	for _, file := range append(files, composed...) {
		read[file] = secret.ReplaceAllString(gatewaytest.ReadFile(t, file), strings.Repeat("c2VjcmV0", 8))
	}
	return read
}

// TestExamples checks that each complete configuration loads without a warning about its sites.
func TestExamples(t *testing.T) {
	for name, text := range exampleCaddyfiles(t) {
		ctx, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sites, err := placement.LoadSites(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if warnings, err := sites.Warnings(); err != nil || len(warnings) > 0 {
			t.Errorf("%s: %q, %v", name, warnings, err)
		}
	}
}

// gatewayLine matches a fhir_gateway directive without a block.
var gatewayLine = regexp.MustCompile(`(?m)^\tfhir_gateway ([^{\n]+|\{.+\})\n`)

// TestGatewayExpansionIsDocumented compares the routes of fhir_gateway in the examples and documents with those of its
// documented expansion.
func TestGatewayExpansionIsDocumented(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(gatewaytest.ReadFile(t, "../../docs/reference/fhir_gateway.md"), "\nThis example expands to the following directives")
	_, expansion, _ := strings.Cut(section, "```caddyfile\nfhir.example.org {\n")
	expansion, _, found := strings.Cut(expansion, "\n}\n```")
	if !found {
		t.Fatal("the reference has no expansion of fhir_gateway")
	}
	texts := exampleCaddyfiles(t)
	for name, page := range documents(t) {
		for i, block := range fence.FindAllStringSubmatch(page, -1) {
			if caddyfile := completeCaddyfile(block[2]); block[1] == "caddyfile" && gatewayLine.MatchString(caddyfile) {
				texts[fmt.Sprint(name, " ", i)] = caddyfile
			}
		}
	}
	if len(texts) < 8 {
		t.Errorf("%d Caddyfiles", len(texts))
	}
	for name, text := range texts {
		line := gatewayLine.FindStringSubmatch(text)
		if strings.Contains(name, "compose/terminology/") {
			continue // the configuration has no FHIR server
		}
		if line == nil {
			t.Errorf("%s does not use fhir_gateway", name)
			continue
		}
		host, base := line[1], "/fhir/R4"
		if before, isHAPI := strings.CutSuffix(host, "/fhir"); isHAPI {
			host, base = before, "/fhir"
		}
		written := strings.NewReplacer("hapi:8080", host, "/fhir/R4", base).Replace(expansion)
		want := routesOf(t, strings.Replace(text, strings.TrimSuffix(line[0], "\n"), written, 1))
		if got := routesOf(t, text); !slices.Equal(got, want) {
			t.Errorf("%s has the routes\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// routesOf returns the handlers of a Caddyfile in order, each preceded by its matchers. Mutually exclusive routes have the same
// number.
func routesOf(t *testing.T, text string) (lines []string) {
	t.Helper()
	app := new(caddyhttp.App)
	if err := json.Unmarshal(gatewaytest.Adapt(t, text).AppsRaw["http"], app); err != nil {
		t.Fatal(err)
	}
	for _, server := range app.Servers {
		lines = append(lines, handlersOf(t, server.Routes, fmt.Sprint(server.Listen))...)
		if server.Errors != nil {
			lines = append(lines, handlersOf(t, server.Errors.Routes, fmt.Sprint(server.Listen, " errors"))...)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(listenerOf(a), listenerOf(b)) })
	return lines
}

func listenerOf(line string) string { listener, _, _ := strings.Cut(line, "]"); return listener }

func handlersOf(t *testing.T, routes caddyhttp.RouteList, before string) (lines []string) {
	t.Helper()
	groups := map[string]int{"": 0}
	for _, route := range routes {
		where := before
		if _, found := groups[route.Group]; !found {
			groups[route.Group] = len(groups)
		}
		if group := groups[route.Group]; group > 0 {
			where += fmt.Sprint(" exclusive ", group)
		}
		for _, set := range route.MatcherSetsRaw {
			where += " " + string(asJSON(t, set))
		}
		for _, raw := range route.HandlersRaw {
			var handler map[string]any
			if err := json.Unmarshal(raw, &handler); err != nil {
				t.Fatal(err)
			}
			if delete(handler, "source"); handler["handler"] != "subroute" {
				lines = append(lines, where+" "+string(asJSON(t, handler)))
				continue
			}
			var nested caddyhttp.Subroute
			if err := json.Unmarshal(raw, &nested); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, handlersOf(t, nested.Routes, where)...)
		}
	}
	return lines
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTerminologyServerRow checks the row for HL7's list of approved terminology servers. The row has the columns of that list.
// The capability statement and the command contain the version of HL7's tests.
func TestTerminologyServerRow(t *testing.T) {
	t.Parallel()
	guide := gatewaytest.ReadFile(t, "../../.github/CONTRIBUTING.md")
	found := regexp.MustCompile(`(?m)^\| Server \|.*\n\|( ---.*)\|\n\|(.*)\|$`).FindStringSubmatch(guide)
	if found == nil {
		t.Fatal("row not found")
	}
	cells := strings.Split(found[2], "|")
	if len(cells) != 5 || strings.Count(found[1], "---") != 5 {
		t.Fatalf("%q", cells)
	}
	claimed := regexp.MustCompile(`testSuiteVersion = "(.+)"`).FindStringSubmatch(gatewaytest.ReadFile(t, "../../terminology/api/capabilitystatement.go"))
	if claimed == nil || strings.TrimSpace(cells[3]) != claimed[1] || !strings.Contains(guide, "-test-version "+claimed[1]+" ") {
		t.Errorf("version %q, claimed %q", cells[3], claimed)
	}
	for _, cell := range cells[:2] {
		if !regexp.MustCompile(`^ \[[^]]+\]\(https://\S+\) $`).MatchString(cell) {
			t.Errorf("no link: %q", cell)
		}
	}
}

// TestRegisteredPackages checks that TestRegistry covers the packages that are registered on Caddy's download page.
func TestRegisteredPackages(t *testing.T) {
	t.Parallel()
	listed := regexp.MustCompile("(?m)^\\| `github.com/caddy-fhir/caddy-fhir/([^`]+)` \\|").FindAllStringSubmatch(gatewaytest.ReadFile(t, "../../.github/CONTRIBUTING.md"), -1)
	_, scanned, _ := strings.Cut(gatewaytest.ReadFile(t, "../registry_test.go"), "var registered = ")
	scanned, _, _ = strings.Cut(scanned, "}\n\n")
	if len(listed) == 0 || strings.Count(scanned, "caddymodule") != len(listed) {
		t.Errorf("%d packages are listed, %d scanned", len(listed), strings.Count(scanned, "caddymodule"))
	}
	for _, path := range listed {
		if !strings.Contains(scanned, `"`+path[1]+`":`) {
			t.Errorf("%s is not scanned", path[1])
		}
	}
}
