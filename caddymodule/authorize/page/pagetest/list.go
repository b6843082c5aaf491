package pagetest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

var (
	writePages  = flag.String("write-pages", "", "folder in which each sample is written as an HTML file")
	updatePages = flag.Bool("update-pages", false, "write the list of pages to docs/evidence/pages.md")
)

// list contains the rendered samples of a folder by name.
type list map[string]string

// check checks the rendered samples: each has a heading, a title that reports errors, and a way forward, and names the person if
// one is signed in. Each text of the templates in files and each message in the Go code of a folder is shown in a sample. The list
// of samples is equal to the section with the given title in a file.
func (l list) check(t *testing.T, files fs.FS, code, file, title string) {
	t.Helper()
	section := "## " + title + "\n\n| Page | State | Heading | Signed in | Way forward |\n|---|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(l)) {
		section += l.row(t, name)
	}
	for _, text := range slices.Concat(templateTexts(t, files), messageTexts(t, code)) {
		if !l.shows(text) {
			t.Errorf("no sample shows %q", text)
		}
	}
	l.write(t)
	compareSection(t, file, title, section)
}

var (
	errorPattern   = regexp.MustCompile(`(?m)^<p role="alert"(?: id="wrong")?>[^<]|aria-invalid="true"`)
	headingPattern = regexp.MustCompile(`<h1>(.*?)</h1>`)
	mainPattern    = regexp.MustCompile(`(?s)<main>(.*)</main>`)
	wayPattern     = regexp.MustCompile(`(?s)<(?:button|a)\b([^>]*)>(.*?)</(?:button|a)>`)
	tagPattern     = regexp.MustCompile(`<[^>]*>`)
	verbPattern    = regexp.MustCompile(`%(?:\[\d+\])?[sd]`)
)

// row returns the row of a sample in the list.
func (l list) row(t *testing.T, name string) string {
	t.Helper()
	text, signedIn := l[name], "no"
	heading, content := headingPattern.FindStringSubmatch(text), mainPattern.FindStringSubmatch(text)
	if heading == nil || content == nil {
		t.Fatalf("%s has no heading: %s", name, text)
	}
	if strings.Contains(text, `class="person"`) {
		signedIn = "yes"
	} else if strings.Contains(text, "You’re signed in to") {
		t.Errorf("%s does not show who is signed in", name)
	}
	if errorPattern.MatchString(text) && !strings.Contains(text, "<title>Error: ") {
		t.Errorf("the title of %s does not begin with Error", name)
	}
	ways := waysForward(content[1])
	if len(ways) == 0 {
		t.Errorf("%s has no way forward", name)
	}
	template, state, _ := strings.Cut(name, "-")
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", template, strings.ReplaceAll(state, "-", " "), plainText(heading[1]), signedIn, strings.Join(ways, ", "))
}

const maxWays = 4 // number of buttons and links listed for a page

// waysForward returns the texts of the first buttons and links of a page without duplicates.
func waysForward(content string) (ways []string) {
	for _, way := range wayPattern.FindAllStringSubmatch(content, -1) {
		text := plainText(way[2])
		if strings.Contains(way[1], `class="choice"`) {
			text = "(each choice)"
		}
		if isHidden := strings.Contains(way[1], " hidden"); isHidden || text == "" || slices.Contains(ways, text) || strings.Contains(way[1], `target="_blank"`) {
			continue
		}
		if len(ways) == maxWays {
			return append(ways, "…")
		}
		ways = append(ways, text)
	}
	return ways
}

func plainText(content string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tagPattern.ReplaceAllString(content, " "))), " ")
}

// shows reports whether a sample contains a text with any values of its verbs.
func (l list) shows(text string) bool {
	parts := verbPattern.Split(text, -1)
	for _, sample := range l {
		found, rest := true, sample
		for _, part := range parts {
			_, after, ok := strings.Cut(rest, html.EscapeString(part))
			found, rest = found && ok, after
		}
		if found {
			return true
		}
	}
	return false
}

var templateText = regexp.MustCompile(`[{( ](?:t "([^"]+)"|n "[^"]+" "([^"]+)")`)

// templateTexts returns the texts in templates. For a plural, it returns the second form.
func templateTexts(t *testing.T, files fs.FS) (texts []string) {
	t.Helper()
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		source, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range templateText.FindAllStringSubmatch(string(source), -1) {
			texts = append(texts, text[1]+text[2])
		}
	}
	return texts
}

// messageTexts returns the titles and texts of messages, and the texts of errors that pages show, in the Go code of a folder.
func messageTexts(t *testing.T, folder string) (texts []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(source, func(n ast.Node) bool {
			texts = append(texts, textsOfNode(n)...)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func textsOfNode(n ast.Node) (texts []string) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if isNamed(n.Fun, "NewRestartError") {
			return literals(n)
		}
	case *ast.CompositeLit:
		if isNamed(n.Type, "Message") {
			ast.Inspect(n, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isNamed(call.Fun, "T") {
					texts = append(texts, literals(call)...)
				}
				return true
			})
		}
	}
	return texts
}

// isNamed reports whether an expression is an identifier of another package with the given name.
func isNamed(e ast.Expr, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == name
}

// literals returns the first argument of a call if it is a literal.
func literals(call *ast.CallExpr) []string {
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return nil
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return nil
	}
	return []string{text}
}

// write writes the samples to the folder of the flag -write-pages.
func (l list) write(t *testing.T) {
	t.Helper()
	if *writePages == "" {
		return
	}
	for name, text := range l {
		if err := os.WriteFile(filepath.Join(*writePages, name+".html"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// compareSection compares a section of the list of pages with the expected one. It replaces the section if the flag -update-pages
// is set.
func compareSection(t *testing.T, file, title, want string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(content), "## "+title+"\n")
	section, after, isLast := rest, "", true
	if i := strings.Index(rest, "\n## "); i >= 0 {
		section, after, isLast = rest[:i], rest[i:], false
	}
	got := "## " + title + "\n" + section
	if !isLast {
		want = strings.TrimSuffix(want, "\n") + "\n"
	}
	if got == want {
		return
	}
	if !*updatePages {
		t.Errorf("%s: section %q is outdated: run go test with -update-pages in this folder", file, title)
		return
	}
	if err := os.WriteFile(file, []byte(before+want+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// render returns a sample in English.
func render(site *page.Site, view page.View) string {
	w := httptest.NewRecorder()
	view.Locales = "en"
	site.Show(w, httptest.NewRequest(http.MethodGet, "/", nil), view)
	return w.Body.String()
}
