package page

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// templateSets returns the templates by language and then by name.
var templateSets = sync.OnceValue(func() map[*translation]map[string]*template.Template {
	sets := map[*translation]map[string]*template.Template{}
	for _, l := range languages {
		sets[l] = parseTemplates(l)
	}
	return sets
})

// parseTemplates returns the templates of a language by name. It panics if an embedded file is invalid, which tests rule out.
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

// functions returns the template functions of a language.
func (l *translation) functions() template.FuncMap {
	return template.FuncMap{
		"t": func(text any, args ...any) any {
			if translated, ok := text.(*Text); ok {
				return l.translate(translated)
			}
			return l.translate(&Text{format: text.(string), args: args})
		},
		"n": func(one, other string, number int) any {
			return l.translate(&Text{format: one, plural: other, number: number, args: []any{number}})
		},
		"sentence": func(x *Text) string { return capitalize(fmt.Sprint(l.translate(x))) },
		"strong":   strong,
		"whole":    noBreak,
		"date":     l.date,
	}
}

// noBreak prevents line breaks in a short text that people compare or copy, e.g. a record number or date.
func noBreak(text string) template.HTML {
	return template.HTML(`<span class="whole">` + template.HTMLEscapeString(text) + "</span>")
}

// strong returns text in a strong element.
func strong(text string) template.HTML {
	return template.HTML("<strong>" + template.HTMLEscapeString(text) + "</strong>")
}

func capitalize(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

//go:embed style.css scripts templates texts.json
var files embed.FS

// sources contains the files of this package and of features.
var sources = []fs.FS{files}

// AddFiles adds the pages of a feature: templates/<name>.html, scripts/<name>.js, and texts.json with the texts that are
// missing in this package. It must be called from an init function.
func AddFiles(added fs.FS) {
	sources = append(sources, added)
	for tag, texts := range readTexts(added) {
		for _, l := range languages {
			if l.tag.String() == tag {
				maps.Copy(l.texts, texts)
			}
		}
	}
}

// readFile returns an embedded file. If several sources contain it, the first one is used.
func readFile(name string) string {
	var failed error
	for _, source := range sources {
		content, err := fs.ReadFile(source, name)
		if err == nil {
			return string(content)
		}
		failed = errors.Join(failed, err)
	}
	panic(failed)
}
