package page

import (
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// templateSets are the pages' templates in each language, by name.
var templateSets = sync.OnceValue(func() map[*translation]map[string]*template.Template {
	sets := map[*translation]map[string]*template.Template{}
	for _, l := range languages {
		sets[l] = parseTemplates(l)
	}
	return sets
})

// parseTemplates panics only if an embedded file is wrong, which no tested binary has.
func parseTemplates(l *translation) map[string]*template.Template {
	set, layout := map[string]*template.Template{}, "templates/layout.html"
	for _, source := range sources {
		names, err := fs.Glob(source, "templates/*.html")
		if err != nil {
			panic(err)
		}
		for _, name := range names {
			if name != layout {
				t := template.Must(template.New("layout.html").Funcs(l.functions()).ParseFS(files, layout))
				set[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(t.ParseFS(source, name))
			}
		}
	}
	return set
}

// functions are what the templates of this language use.
func (l *translation) functions() template.FuncMap {
	return template.FuncMap{
		"t": func(text any, args ...any) any {
			if made, ok := text.(*Text); ok {
				return l.translate(made)
			}
			return l.translate(&Text{format: text.(string), args: args})
		},
		"n": func(one, other string, number int) any {
			return l.translate(&Text{format: one, plural: other, number: number, args: []any{number}})
		},
		"sentence": func(x *Text) string { return capitalize(fmt.Sprint(l.translate(x))) },
		"strong":   strong,
		"whole":    whole,
		"date":     l.date,
	}
}

// whole keeps what people compare or copy, such as a record number, on one line if that is long enough.
func whole(text string) template.HTML {
	return template.HTML(`<span class="whole">` + template.HTMLEscapeString(text) + "</span>")
}

// strong marks what matters in a text.
func strong(text string) template.HTML {
	return template.HTML("<strong>" + template.HTMLEscapeString(text) + "</strong>")
}

func capitalize(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
