package page

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template/parse"
)

// usedText is a text in a template or in Go code.
type usedText struct{ one, text, where string }

// pageFolders returns the folders that contain pages: this folder and those of features.
func pageFolders(t *testing.T) []string {
	t.Helper()
	texts, err := filepath.Glob("../../features/*/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{"."}
	for _, name := range texts {
		folders = append(folders, filepath.Dir(name))
	}
	return folders
}

// usedTexts returns all texts in a folder of templates and a folder of Go code.
func usedTexts(t *testing.T, templates, code string) map[string]usedText {
	t.Helper()
	used := map[string]usedText{}
	add := func(u usedText) { used[u.text] = u }
	for name, tree := range templateTrees(t, templates) {
		inspect(tree.Root, func(c *parse.CommandNode) {
			if u, ok := textOfCommand(c); ok {
				u.where = name
				add(u)
			}
		})
	}
	for name, file := range sourcesIn(t, code) {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				textsOfCall(t, name, call, add)
			}
			return true
		})
	}
	return used
}

// templateTrees returns the parsed templates in a folder, including nested ones, by file and name.
func templateTrees(t *testing.T, folder string) map[string]*parse.Tree {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "templates/*.html"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d templates in %s: %v", len(names), folder, err)
	}
	trees := map[string]*parse.Tree{}
	for _, name := range names {
		set := map[string]*parse.Tree{}
		tree := parse.New(name)
		tree.Mode = parse.SkipFuncCheck
		if _, err := tree.Parse(contentOf(t, name), "", "", set); err != nil {
			t.Fatal(err)
		}
		for defined, tree := range set {
			trees[name+" "+defined] = tree
		}
	}
	return trees
}

// inspect calls f with every command in a node.
func inspect(n parse.Node, f func(*parse.CommandNode)) {
	branch := func(b *parse.BranchNode) {
		inspect(b.Pipe, f)
		inspect(b.List, f)
		if b.ElseList != nil {
			inspect(b.ElseList, f)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			inspect(child, f)
		}
	case *parse.ActionNode:
		inspect(n.Pipe, f)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			inspect(n.Pipe, f)
		}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			f(command)
			for _, arg := range command.Args {
				inspect(arg, f)
			}
		}
	}
}

// textOfCommand returns the text in {{t "…"}} or {{n "…" "…" .Number}}; false for other commands.
func textOfCommand(c *parse.CommandNode) (usedText, bool) {
	function, ok := c.Args[0].(*parse.IdentifierNode)
	if !ok || len(c.Args) < 2 {
		return usedText{}, false
	}
	first, ok := c.Args[1].(*parse.StringNode)
	switch {
	case !ok:
		return usedText{}, false
	case function.Ident == "t":
		return usedText{text: first.Text}, true
	case function.Ident == "n":
		return usedText{one: first.Text, text: c.Args[2].(*parse.StringNode).Text}, true
	}
	return usedText{}, false
}

func contentOf(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// sourcesIn returns the parsed Go files in a folder and its subfolders, except tests.
func sourcesIn(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	sources := map[string]*ast.File{}
	err := filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		sources[name], err = parser.ParseFile(token.NewFileSet(), name, nil, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// textsOfCall calls add with the texts in a call of page.T, page.Plural or oauth2.NewRestartError, which must be literals.
func textsOfCall(t *testing.T, where string, call *ast.CallExpr, add func(usedText)) {
	t.Helper()
	literal := func(i int) string {
		literal, ok := call.Args[i].(*ast.BasicLit)
		if !ok {
			t.Errorf("%s: the text is not a literal", where)
			return ""
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	switch calledName(call.Fun, filepath.Base(filepath.Dir(where))) {
	case "page.T", "oauth2.NewRestartError":
		add(usedText{text: literal(0), where: where})
	case "page.Plural":
		add(usedText{one: literal(0), text: literal(1), where: where})
	}
}

// calledName returns the name of the called function with its package. room is the package that contains the call.
func calledName(function ast.Expr, room string) string {
	switch function := function.(type) {
	case *ast.Ident:
		return room + "." + function.Name
	case *ast.SelectorExpr:
		if room, ok := function.X.(*ast.Ident); ok {
			return room.Name + "." + function.Sel.Name
		}
	}
	return ""
}

var (
	markup     = regexp.MustCompile(`<[^>]*>`)
	spokenAttr = regexp.MustCompile(`(?:aria-label|aria-description|alt|title|placeholder)="([^"]*)"`)
	anyLetter  = regexp.MustCompile(`\pL`)
	action     = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// All text in templates is passed to t. Other text would be shown in English in every language.
func TestTemplatesHaveNoOtherTexts(t *testing.T) {
	t.Parallel()
	var names []string
	for _, folder := range pageFolders(t) {
		found, err := filepath.Glob(filepath.Join(folder, "templates/*.html"))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	for _, name := range names {
		source := action.ReplaceAllString(contentOf(t, name), "")
		for _, spoken := range spokenAttr.FindAllStringSubmatch(source, -1) {
			if anyLetter.MatchString(spoken[1]) {
				t.Errorf("%s: %q", name, spoken[1])
			}
		}
		if text := strings.TrimSpace(markup.ReplaceAllString(source, "")); anyLetter.MatchString(text) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// Every text is translated into every language, with the same verbs, and no translation is unused. A regional variant contains
// only texts that differ from those of its language. Texts of a feature are in its folder, unless they are also texts of the
// core.
func TestTranslationsAreComplete(t *testing.T) {
	t.Parallel()
	if len(languages) < 5 {
		t.Fatalf("%d languages", len(languages))
	}
	core := readTexts(files)
	for _, folder := range pageFolders(t) {
		code := folder
		if folder == "." {
			code = ".." // directory of the authorization server
		}
		used, texts := usedTexts(t, folder, code), readTexts(os.DirFS(folder))
		for language, ofCore := range core {
			for text, u := range used {
				translated, ok := texts[language][text]
				if !ok {
					translated = ofCore[text]
				}
				if translated != nil || !strings.Contains(language, "-") {
					checkTranslation(t, language, u, translated)
				}
			}
			for text := range texts[language] {
				if _, ok := used[text]; !ok {
					t.Errorf("%s: not used in %s: %q", language, folder, text)
				}
				if _, ok := ofCore[text]; ok && folder != "." {
					t.Errorf("%s: %s and the core translate %q", language, folder, text)
				}
			}
		}
	}
}

func checkTranslation(t *testing.T, language string, u usedText, got pluralForms) {
	t.Helper()
	english := pluralForms{u.text}
	if u.one != "" {
		english = pluralForms{u.one, u.text}
	}
	if len(got) != len(english) {
		t.Errorf("%s: %d forms of %q in %s, want %d", language, len(got), u.text, u.where, len(english))
		return
	}
	for i, form := range got {
		if strings.TrimSpace(form) != form || form == "" || !slices.Equal(verbs(t, form), verbs(t, english[i])) {
			t.Errorf("%s: %q for %q", language, form, english[i])
		}
	}
}

var verb = regexp.MustCompile(`%(?:\[(\d)\])?(.)`)

// verbs returns the verbs of a format in the order of the arguments.
func verbs(t *testing.T, format string) []string {
	t.Helper()
	found := map[int]string{}
	for i, match := range verb.FindAllStringSubmatch(format, -1) {
		if match[1] != "" {
			explicit, err := strconv.Atoi(match[1])
			if err != nil {
				t.Fatal(err)
			}
			i = explicit - 1
		}
		found[i] = match[2]
	}
	var sorted []string
	for _, i := range slices.Sorted(maps.Keys(found)) {
		sorted = append(sorted, strconv.Itoa(i)+found[i])
	}
	return sorted
}
