package documents

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
)

var (
	fence    = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	withPath = regexp.MustCompile(`^[a-z]+:`)
)

// documents are the README, the changelog and the pages in docs, docs/evidence and
// .github, by their path from the repository's root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d pages in docs: %v", len(files), err)
	}
	evidence, err := filepath.Glob("../../docs/evidence/*.md")
	if err != nil || len(evidence) < 6 {
		t.Fatalf("%d pages of evidence: %v", len(evidence), err)
	}
	read := map[string]string{}
	files = append(append(files, evidence...), "../../README.md", "../../CHANGELOG.md", "../../.github/CONTRIBUTING.md", "../../.github/SECURITY.md")
	for _, file := range files {
		text := gatewaytest.ReadFile(t, file)
		read[strings.TrimPrefix(file, "../../")] = text
	}
	return read
}

// Every link in the documents into the repository leads to a file, and to a heading
// that it has.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	for name, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if withPath.MatchString(found[1]) {
				continue // to another site
			}
			target, anchor, _ := strings.Cut(found[1], "#")
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s links to %s: %v", name, found[1], err)
			} else if anchor != "" && !slices.Contains(gatewaytest.Anchors(pages[path]), anchor) {
				t.Errorf("%s links to %s: there is no such heading", name, found[1])
			}
		}
	}
}

// Every page in docs is linked from the README, and every page in docs/evidence from the
// one there that lists them.
func TestREADMELeadsToDocuments(t *testing.T) {
	t.Parallel()
	const evidence = "docs/evidence/"
	pages := documents(t)
	for name := range pages {
		list, link := "README.md", name
		if page, ok := strings.CutPrefix(name, evidence); ok && page != "README.md" {
			list, link = evidence+"README.md", page
		}
		if name != list && !strings.Contains(pages[list], "]("+link+")") {
			t.Errorf("%s has no link to %s", list, name)
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	got := gatewaytest.Anchors("# A `b_c`, and $d: e!\n\n```\n# none\n```\n\n## Same\n## Same\n")
	if want := []string{"a-b_c-and-d-e", "same", "same-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every Caddyfile in the documents loads without a warning, whole or within the block it belongs to. Secrets and the files
// of a site are made up.
func TestDocumentedCaddyfiles(t *testing.T) {
	secret := regexp.MustCompile(`\{(env|file)\.[^}]+\}`)
	file := regexp.MustCompile(`/(?:srv|etc|var)/(?:\w+/)?`)
	folder, count := t.TempDir(), 0
	if err := os.Mkdir(filepath.Join(folder, "valuesets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, resource := range map[string]string{
		"valuesets/a.json": `{"resourceType":"ValueSet","url":"http://a.example/vs","status":"active"}`, "uscore.json": gatewaytest.ReadFile(t, "../fhirapp/testdata/searchparameters.json"),
		"brands.json":   gatewaytest.ReadFile(t, "../../docs/examples/user-access-brands.json"),
		"lab-feed.json": `{"keys":[{"kty":"EC","crv":"P-256","kid":"1","x":"yPu-1-LDWNScRJfk1sbNAMMfpqXsRkv8TImRza0NP9k","y":"AYnpCe25wMKEoV03uuQmJWUCWJyn8JaNHq6OzkJ304E"}]}`,
	} {
		gatewaytest.Put(t, filepath.Join(folder, name), resource)
	}
	certificates := gatewaytest.NewAuthority(t, "hospital")
	certificates.Write(filepath.Join(folder, "hospital-ca.pem"), "CERTIFICATE", certificates.Certificate.Raw)
	certificates.Issue("gateway", filepath.Join(folder, "gateway.pem"), filepath.Join(folder, "gateway.key"))
	for name, text := range documents(t) {
		for _, found := range fence.FindAllStringSubmatch(text, -1) {
			if found[1] != "caddyfile" {
				continue
			}
			count++
			whole := secret.ReplaceAllString(wholeCaddyfile(found[2]), strings.Repeat("c2VjcmV0", 8))
			whole = strings.ReplaceAll(file.ReplaceAllString(whole, folder+"/"), "*.tgz", "valuesets/a.json")
			document, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(whole), map[string]any{"filename": name})
			if err != nil || len(warnings) > 0 {
				t.Errorf("%v %v\n%s", err, warnings, whole)
				continue
			}
			var config caddy.Config
			if err := json.Unmarshal(document, &config); err != nil {
				t.Fatal(err)
			}
			ctx, err := gatewaytest.Provision(t, &config)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, whole)
				continue
			}
			sites, err := placement.Checks(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if warnings, err := sites.Warnings(); err != nil || len(warnings) > 0 {
				t.Errorf("%s: %q, %v\n%s", name, warnings, err, whole)
			}
		}
	}
	if count < 8 {
		t.Errorf("%d Caddyfiles", count)
	}
}

// Guides name no release that does not exist: everyone who follows them today builds from source.
func TestDocumentsNameReleases(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?:caddy-fhir[_@:]|image\.tag=|releases/\w*/)v?(\d+\.\d+\.\d+)`)
	changelog := gatewaytest.ReadFile(t, "../../CHANGELOG.md")
	for name, text := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(changelog, "\n## ["+found[1]+"]") {
				t.Errorf("%s: %s was not released", name, found[0])
			}
		}
	}
}

// No entry of the changelog is there twice, as happens when two branches are merged.
func TestChangelogRepeatsNothing(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for line := range strings.Lines(gatewaytest.ReadFile(t, "../../CHANGELOG.md")) {
		begin := line[:min(len(line), 60)]
		if len(line) > 30 && seen[begin] {
			t.Errorf("two entries begin with %q", begin)
		}
		seen[begin] = true
	}
}

// Code that the documents quote stands in the file that they name before it.
func TestQuotedCode(t *testing.T) {
	t.Parallel()
	quote := regexp.MustCompile("(?m)^From \\[[^]]+\\]\\(([^()]+)\\).*:\n\n```go\n((?s:.*?))^```")
	count := 0
	for name, text := range documents(t) {
		for _, found := range quote.FindAllStringSubmatch(text, -1) {
			count++
			source := gatewaytest.ReadFile(t, filepath.Join("../..", filepath.Dir(name), found[1]))
			if !strings.Contains(source, found[2]) {
				t.Errorf("%s quotes what is not in %s:\n%s", name, found[1], found[2])
			}
		}
		count -= strings.Count(text, "```go\n")
	}
	if count != 0 {
		t.Errorf("%d blocks of code are not quoted from a file", -count)
	}
}

// wholeCaddyfile puts a part of a Caddyfile where it belongs.
func wholeCaddyfile(part string) string {
	indent := func(by string) string {
		return by + strings.ReplaceAll(strings.TrimSpace(part), "\n", "\n"+by)
	}
	switch first, _, _ := strings.Cut(part, " "); first {
	case "user", "client", "idp", "scope_limit", "user_access_brands", "branding":
		return "{\n\tfhir {\n\t\tissuer https://fhir.example\n" + indent("\t\t") + "\n\t}\n}\n"
	case "fhir_bearer":
		if strings.Contains(part, "\ttrust ") || strings.Contains(part, "\tintrospect ") {
			return "fhir.example {\n" + indent("\t") + "\n}\n"
		}
		return "{\n\tfhir {\n\t\tissuer https://fhir.example\n\t}\n}\n\nfhir.example {\n\tfhir_authorize\n" + indent("\t") + "\n}\n"
	case "fhir.example.org":
		return "{\n\tfhir {\n\t\tissuer https://fhir.example.org\n\t}\n}\n\n" + part
	case "log", "encode", "fhir_expand", "reverse_proxy":
		return "fhir.example {\n" + indent("\t") + "\n}\n"
	}
	return part
}

// namedTest is a test as documents write it, perhaps with one of its cases.
var namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)(?:/([^`]+))?`")

// Every test that the documents name exists.
func TestDocumentsNameTests(t *testing.T) {
	t.Parallel()
	sources, count := testSources(t), 0
	for name, text := range documents(t) {
		for _, n := range namedTest.FindAllStringSubmatch(text, -1) {
			count++
			has := func(source string) bool {
				return strings.Contains(source, "func "+n[1]+"(") && strings.Contains(source, n[2])
			}
			if !slices.ContainsFunc(sources, has) {
				t.Errorf("%s: there is no test %s", name, n[0])
			}
		}
	}
	if count < 500 {
		t.Errorf("the documents name %d tests", count)
	}
}

// testSources are the repository's files of tests.
func testSources(t *testing.T) (sources []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			sources = append(sources, string(text))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// TestExamplesHaveTimeouts checks that each complete configuration disconnects clients that stop reading or sending.
func TestExamplesHaveTimeouts(t *testing.T) {
	t.Parallel()
	files := []string{"../../Caddyfile.example", "../../docs/examples/packages/Caddyfile", "../../docs/examples/helm/templates/_helpers.tpl"}
	composed, err := filepath.Glob("../../docs/examples/compose/*/Caddyfile")
	if err != nil || len(composed) == 0 {
		t.Fatalf("%d Compose examples: %v", len(composed), err)
	}
	for _, file := range append(files, composed...) {
		if text := gatewaytest.ReadFile(t, file); !strings.Contains(text, "\t\ttimeouts {\n\t\t\tread_body_idle 30s\n\t\t\twrite_idle 30s\n\t\t}\n") {
			t.Errorf("%s has no read_body_idle and write_idle", file)
		}
	}
}
