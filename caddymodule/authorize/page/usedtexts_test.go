package page

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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

// usedText is a text in a template or in code.
type usedText struct{ one, text, where string }

// usedTexts are all that people may read.
func usedTexts(t *testing.T) map[string]usedText {
	t.Helper()
	used := map[string]usedText{}
	add := func(u usedText) { used[u.text] = u }
	for name, tree := range templateTrees(t) {
		inspect(tree.Root, func(c *parse.CommandNode) {
			if u, ok := textOfCommand(c); ok {
				u.where = name
				add(u)
			}
		})
	}
	for name, file := range authorizeSources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				textsOfCall(t, name, call, add)
			}
			return true
		})
	}
	return used
}

// templateTrees are the parsed templates, and those defined in them, by file and name.
func templateTrees(t *testing.T) map[string]*parse.Tree {
	t.Helper()
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d templates: %v", len(names), err)
	}
	trees := map[string]*parse.Tree{}
	for _, name := range names {
		set := map[string]*parse.Tree{}
		tree := parse.New(name)
		tree.Mode = parse.SkipFuncCheck
		if _, err := tree.Parse(readFile(name), "", "", set); err != nil {
			t.Fatal(err)
		}
		for defined, tree := range set {
			trees[name+" "+defined] = tree
		}
	}
	return trees
}

// inspect calls f for every command below a node.
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

// textOfCommand reads {{t "…"}} and {{n "…" "…" .Number}}.
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

// authorizeSources are the parsed files of the authorization server, without tests.
func authorizeSources(t *testing.T) map[string]*ast.File {
	t.Helper()
	sources := map[string]*ast.File{}
	err := filepath.WalkDir("..", func(name string, entry os.DirEntry, err error) error {
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

// textsOfCall reads page.T, page.Plural and oauth2.StartAgain, whose texts must be literals.
func textsOfCall(t *testing.T, where string, call *ast.CallExpr, add func(usedText)) {
	t.Helper()
	literal := func(i int) string {
		literal, ok := call.Args[i].(*ast.BasicLit)
		if !ok {
			t.Errorf("%s: a text that is no literal is not found", where)
			return ""
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	switch calledName(call.Fun, filepath.Base(filepath.Dir(where))) {
	case "page.T", "oauth2.StartAgain":
		add(usedText{text: literal(0), where: where})
	case "page.Plural":
		add(usedText{one: literal(0), text: literal(1), where: where})
	}
}

// calledName is the name of a called function, with that of its package.
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

// A text that is not an argument of t would be English in every language.
func TestTemplatesHaveNoOtherTexts(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		source := action.ReplaceAllString(readFile(name), "")
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

// Every text is there in every language, with the same verbs, and no other is.
func TestTranslationsAreComplete(t *testing.T) {
	t.Parallel()
	used := usedTexts(t)
	if len(languages) < 5 {
		t.Fatalf("%d languages", len(languages))
	}
	for _, l := range languages[1:] {
		for text, u := range used {
			checkTranslation(t, l, u, l.texts[text])
		}
		for text := range l.texts {
			if _, ok := used[text]; !ok {
				t.Errorf("%s: nobody uses %q", l.tag, text)
			}
		}
	}
}

func checkTranslation(t *testing.T, l *translation, u usedText, got forms) {
	t.Helper()
	english := forms{u.text}
	if u.one != "" {
		english = forms{u.one, u.text}
	}
	if len(got) != len(english) {
		t.Errorf("%s: %d forms of %q in %s, want %d", l.tag, len(got), u.text, u.where, len(english))
		return
	}
	for i, form := range got {
		if strings.TrimSpace(form) != form || form == "" || !slices.Equal(verbs(t, form), verbs(t, english[i])) {
			t.Errorf("%s: %q for %q", l.tag, form, english[i])
		}
	}
}

var verb = regexp.MustCompile(`%(?:\[(\d)\])?(.)`)

// verbs are those of a format, in the order of the arguments.
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
