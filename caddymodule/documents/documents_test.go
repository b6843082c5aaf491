package documents

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"go/parser"
	"go/token"
	"html"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/breaker"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

var (
	fence    = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	withPath = regexp.MustCompile(`^[a-z]+:`)
)

// documents returns the README, the changelog and the pages in docs and .github by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files := []string{"../../README.md", "../../CHANGELOG.md", "../../.github/CONTRIBUTING.md", "../../.github/SECURITY.md"}
	for pattern, least := range map[string]int{"*": 1, "start/*": 0, "guides/*": 0, "concepts/*": 5, "reference/*": 20, "operate/*": 7, "evidence/*": 6} {
		pages, err := filepath.Glob("../../docs/" + pattern + ".md")
		if err != nil || len(pages) < least {
			t.Fatalf("%d pages in docs/%s: %v", len(pages), pattern, err)
		}
		files = append(files, pages...)
	}
	read := map[string]string{}
	for _, file := range files {
		read[strings.TrimPrefix(file, "../../")] = gatewaytest.ReadFile(t, file)
	}
	return read
}

// Every link from the documents into the repository has an existing file and heading as its target.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	for name, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if withPath.MatchString(found[1]) {
				continue // external link
			}
			target, anchor, _ := strings.Cut(found[1], "#")
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s links to %s: %v", name, found[1], err)
			} else if anchor != "" && !slices.Contains(gatewaytest.Anchors(pages[path]), anchor) {
				t.Errorf("%s links to %s: heading not found", name, found[1])
			}
		}
	}
}

// TestREADMELinksToDocuments checks that the README links to docs/README.md, which links to every page in docs, and that
// docs/evidence/README.md links to every page of evidence.
func TestREADMELinksToDocuments(t *testing.T) {
	t.Parallel()
	const docs, evidence = "docs/", "docs/evidence/"
	pages := documents(t)
	for name := range pages {
		list, link := "README.md", name
		if page, ok := strings.CutPrefix(name, evidence); ok && page != "README.md" {
			list, link = evidence+"README.md", page
		} else if page, ok := strings.CutPrefix(name, docs); ok && page != "README.md" {
			list, link = docs+"README.md", page
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

// Every Caddyfile in the documents loads without a warning, whether it is complete or only part of a block. Secrets and files
// that a site would supply are generated.
func TestDocumentedCaddyfiles(t *testing.T) {
	secret := regexp.MustCompile(`\{(env|file)\.[^}]+\}`)
	hash := regexp.MustCompile(`\{file\.[^}]+\.hash\}`)
	file := regexp.MustCompile(`/(?:srv|etc|var)/(?:\w+/)?`)
	definitions := regexp.MustCompile(`\*\.tgz|[\w.]+\.zip`)
	folder, count := t.TempDir(), 0
	if err := os.Mkdir(filepath.Join(folder, "valuesets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, resource := range map[string]string{
		"valuesets/a.json": `{"resourceType":"ValueSet","url":"http://a.example/vs","status":"active"}`, "uscore.json": gatewaytest.ReadFile(t, "../fhirapp/testdata/searchparameters.json"),
		"brands.json":   gatewaytest.ReadFile(t, "../../docs/examples/user-access-brands.json"),
		"lab-feed.json": `{"keys":[{"kty":"EC","crv":"P-256","kid":"1","x":"yPu-1-LDWNScRJfk1sbNAMMfpqXsRkv8TImRza0NP9k","y":"AYnpCe25wMKEoV03uuQmJWUCWJyn8JaNHq6OzkJ304E"}]}`,
	} {
		gatewaytest.ReplaceFile(t, filepath.Join(folder, name), resource)
	}
	certificates := gatewaytest.NewAuthority(t, "hospital")
	certificates.WritePEM(filepath.Join(folder, "hospital-ca.pem"), "CERTIFICATE", certificates.Certificate.Raw)
	certificates.Issue("gateway", filepath.Join(folder, "gateway.pem"), filepath.Join(folder, "gateway.key"))
	pkcs8, err := x509.MarshalPKCS8PrivateKey(josetest.NewEC(elliptic.P256()))
	if err != nil {
		t.Fatal(err)
	}
	certificates.WritePEM(filepath.Join(folder, "AuthKey_ABC123DEFG.p8"), "PRIVATE KEY", pkcs8)
	for name, text := range documents(t) {
		for _, found := range fence.FindAllStringSubmatch(text, -1) {
			if found[1] != "caddyfile" {
				continue
			}
			count++
			caddyfile := hash.ReplaceAllString(completeCaddyfile(found[2]), "$$2a$$10$$ItlMyMTaHOapU0jOlqAKDeKxwtj3jMQrwFNvdsOH7fXf5Z8O4Sjjy")
			caddyfile = secret.ReplaceAllString(caddyfile, strings.Repeat("c2VjcmV0", 8))
			caddyfile = definitions.ReplaceAllString(file.ReplaceAllString(caddyfile, folder+"/"), "valuesets/a.json")
			document, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": name})
			if err != nil || len(warnings) > 0 {
				t.Errorf("%v %v\n%s", err, warnings, caddyfile)
				continue
			}
			var config caddy.Config
			if err := json.Unmarshal(document, &config); err != nil {
				t.Fatal(err)
			}
			ctx, err := gatewaytest.Provision(t, &config)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, caddyfile)
				continue
			}
			sites, err := placement.LoadSites(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if warnings, err := sites.Warnings(); err != nil || len(warnings) > 0 {
				t.Errorf("%s: %q, %v\n%s", name, warnings, err, caddyfile)
			}
		}
	}
	if count < 8 {
		t.Errorf("%d Caddyfiles", count)
	}
}

// Guides mention only existing releases. Until there is a release, users build from source.
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

// The changelog contains no duplicate entries, as could result from a merge.
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

// Code quoted in the documents occurs in the file that is named before the quotation.
func TestQuotedCode(t *testing.T) {
	t.Parallel()
	quote := regexp.MustCompile("(?m)^From \\[[^]]+\\]\\(([^()]+)\\).*:\n\n```go\n((?s:.*?))^```")
	count := 0
	for name, text := range documents(t) {
		for _, found := range quote.FindAllStringSubmatch(text, -1) {
			count++
			source := gatewaytest.ReadFile(t, filepath.Join("../..", filepath.Dir(name), found[1]))
			if !strings.Contains(source, found[2]) {
				t.Errorf("%s quotes text that is not in %s:\n%s", name, found[1], found[2])
			}
		}
		count -= strings.Count(text, "```go\n")
	}
	if count != 0 {
		t.Errorf("%d blocks of code are not quoted from a file", -count)
	}
}

// completeCaddyfile embeds a part of a Caddyfile into the blocks to which it belongs.
func completeCaddyfile(part string) string {
	indent := func(by string) string {
		return by + strings.ReplaceAll(strings.TrimSpace(part), "\n", "\n"+by)
	}
	switch first, _, _ := strings.Cut(part, " "); first {
	case "user", "client", "idp", "scope_limit", "user_access_brands", "branding", "store":
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

// namedTest matches the name of a test in documents, optionally with a subtest.
var namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)(?:/([^`]+))?`")

// Every test mentioned in the documents exists.
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
				t.Errorf("%s: test %s not found", name, n[0])
			}
		}
	}
	if count < 500 {
		t.Errorf("the documents name %d tests", count)
	}
}

// testSources returns the contents of the repository's test files.
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

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var (
	// fileName matches the name of a file in documents, optionally with folders or *.
	fileName = regexp.MustCompile(`[\w.*/-]*\w\.(?:go|mjs|txt|md|sh|yml)\b`)

	// linkText matches the text of a Markdown link, without the target.
	linkText = regexp.MustCompile(`\[[^]]*\]\(`)
)

// Each file mentioned in a package comment or in docs/architecture.md exists in the same folder or a parent folder.
func TestDocumentsNameFiles(t *testing.T) {
	t.Parallel()
	count := 0
	texts := packageComments(t)
	texts["../../docs/architecture.md"] = gatewaytest.ReadFile(t, "../../docs/architecture.md")
	for document, text := range texts {
		for _, name := range fileName.FindAllString(linkText.ReplaceAllString(text, "("), -1) {
			count++
			if !fileExists(filepath.Dir(document), name) {
				t.Errorf("%s names %s, which is not there", document, name)
			}
		}
	}
	if len(texts) < 100 || count < 200 {
		t.Errorf("%d documents name %d files", len(texts), count)
	}
}

// packageComments returns the package comments of the repository by file.
func packageComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		if file.Doc != nil {
			comments[path] = file.Doc.Text()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return comments
}

// fileExists reports whether a file exists in a folder or in one of its parents.
func fileExists(folder, name string) bool {
	for {
		if found, err := filepath.Glob(filepath.Join(folder, name)); err == nil && len(found) > 0 {
			return true
		}
		if folder == "../.." || !strings.HasPrefix(folder, "../../") {
			return false
		}
		folder = filepath.Dir(folder)
	}
}

var (
	optionInSource = regexp.MustCompile(`(?:\n\t+|Block\{)"([a-z_]+)":\s`)
	codeSpan       = regexp.MustCompile("`[^`\n]+`")
	optionHeading  = regexp.MustCompile("(?m)^### `([a-z_]+)[^`]*`$")
)

// TestReferenceNamesOptions checks that docs/reference mentions every word that the project's modules add to the Caddyfile.
// Each option has a heading, and there are no other headings.
func TestReferenceNamesOptions(t *testing.T) {
	t.Parallel()
	reference := ""
	for name, text := range documents(t) {
		if strings.HasPrefix(name, "docs/reference/") {
			reference += "\n" + text
		}
	}
	spans := strings.Join(codeSpan.FindAllString(strings.ReplaceAll(reference, "```", ""), -1), " ")
	options := optionsOfSource(t)
	if len(options) < 60 {
		t.Errorf("%d options: %q", len(options), options)
	}
	for _, option := range options {
		if !regexp.MustCompile(`\b` + option + `\b`).MatchString(spans) {
			t.Errorf("docs/reference does not name %s", option)
		}
	}
	headings := optionHeading.FindAllStringSubmatch(reference, -1)
	if len(headings) < 100 {
		t.Errorf("%d headings for %d options", len(headings), len(options))
	}
	for _, heading := range headings {
		if !slices.Contains(options, heading[1]) {
			t.Errorf("docs/reference has a heading for %s, which is not an option", heading[1])
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

// TestMetricsDocumentLabels compares the label values in docs/reference/metrics.md with the lists in the code.
func TestMetricsDocumentLabels(t *testing.T) {
	text := gatewaytest.ReadFile(t, "../../docs/reference/metrics.md")
	for metric, want := range map[string][]string{
		"caddy_fhir_endpoint_duration_seconds":     endpoint.Names(),
		"caddy_fhir_bearer_decisions_total":        wordsOf(bearer.Decisions),
		"caddy_fhir_expand_requests_total":         wordsOf(dispatch.Outcomes),
		"caddy_fhir_store_operations_total":        append(wordsOf(breaker.Outcomes), breaker.Operations...),
		"caddy_fhir_store_problem":                 wordsOf(store.Causes),
		"caddy_fhir_store_connections":             {"idle", "used"},
		"caddy_fhir_idp_checked_timestamp_seconds": wordsOf(revalidation.Results),
		"caddy_fhir_definitions":                   {"concepts", "code_systems", "value_sets"},
	} {
		row := regexp.MustCompile("(?m)^- `" + metric + "` \\([^)]*\\): (.*)$").FindStringSubmatch(text)
		if row == nil {
			t.Errorf("no row for %s", metric)
			continue
		}
		values := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(row[1], "") // remove the explanations
		var listed []string
		for _, span := range codeSpan.FindAllString(values, -1) {
			listed = append(listed, strings.Trim(span, "`"))
		}
		for _, value := range want {
			if !slices.Contains(listed, value) {
				t.Errorf("%s: %q is not listed", metric, value)
			}
		}
		for _, value := range listed {
			if !slices.Contains(want, value) {
				t.Errorf("%s: %q is not a value of its label", metric, value)
			}
		}
	}
}

func wordsOf[W ~string](list []W) (words []string) {
	for _, w := range list {
		words = append(words, string(w))
	}
	return words
}

var (
	requirementRow   = regexp.MustCompile(`(?m)^\| ([0-9, ]+) \| [^|]+ \| (met|not applicable|open): (.+) \|$`)
	requirementTests = regexp.MustCompile("^`Test[A-Za-z0-9]+`(, `Test[A-Za-z0-9]+`)*$")
)

// docs/evidence/smart-requirements.md lists each requirement of SMART App Launch once: with existing tests, with the reason why
// it does not apply, or as open.
func TestSMARTRequirements(t *testing.T) {
	t.Parallel()
	document := gatewaytest.ReadFile(t, "../../docs/evidence/smart-requirements.md")
	numbers := gatewaytest.ReadFile(t, "../../docs/evidence/smart-requirements.txt")
	seen := map[string]int{}
	sources := testSources(t)
	for _, row := range requirementRow.FindAllStringSubmatch(document, -1) {
		for number := range strings.SplitSeq(row[1], ", ") {
			seen[number]++
		}
		checkRequirement(t, sources, row[2], row[3])
	}
	for number := range strings.FieldsSeq(numbers) {
		if seen[number] != 1 {
			t.Errorf("requirement %s is there %d times", number, seen[number])
		}
		delete(seen, number)
	}
	for number := range seen {
		t.Errorf("requirement %s not found", number)
	}
}

func checkRequirement(t *testing.T, sources []string, state, reason string) {
	t.Helper()
	switch {
	case state == "met" && !requirementTests.MatchString(reason):
		t.Errorf("%s: not a list of test names", reason)
	case state == "not applicable" && !strings.HasSuffix(reason, "."):
		t.Errorf("%s: not a sentence", reason)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(reason, -1) {
		declares := func(source string) bool { return strings.Contains(source, "\nfunc "+name[1]+"(") }
		if !slices.ContainsFunc(sources, declares) {
			t.Errorf("test %s not found", name[1])
		}
	}
}

// Every link to the gateway on the example's start page works. The link to demo-app leads to the sign-in page.
func TestStartPage(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Example(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, "{}")
	}))
	response := g.Get("/", "")
	page := gatewaytest.ReadBody(t, response)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(page, "<h1>caddy-fhir runs</h1>") {
		t.Fatalf("%d %v: %s", response.StatusCode, response.Header, page)
	}
	want := map[string]int{
		"/oauth2/launch_page": http.StatusSeeOther, "/oauth2/sandbox_app": http.StatusOK, "/oauth2/account": http.StatusSeeOther,
		"/oauth2/authorize": http.StatusFound, "/.well-known/openid-configuration": http.StatusOK,
		"/fhir/R4/.well-known/smart-configuration": http.StatusOK, "/fhir/R4/metadata": http.StatusOK, "/fhir/R4/Patient": http.StatusUnauthorized,
	}
	for _, link := range regexp.MustCompile(`href="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		target := html.UnescapeString(link[1])
		path, _, _ := strings.Cut(target, "?")
		r := g.Get(target, "")
		if r.StatusCode != want[path] {
			t.Errorf("%s: %d, want %d", target, r.StatusCode, want[path])
		}
		if place := r.Header.Get("Location"); path == "/oauth2/authorize" && !strings.Contains(place, "/oauth2/login?") {
			t.Errorf("the sign-in leads to %s", place)
		}
		delete(want, path)
	}
	if len(want) > 0 {
		t.Errorf("no link to %v", want)
	}
}
