package page

import (
	"embed"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed style.css scripts templates texts.json
var files embed.FS

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
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	set, layout := map[string]*template.Template{}, "templates/layout.html"
	for _, name := range names {
		if name != layout {
			t := template.New("layout.html").Funcs(l.functions())
			set[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(t.ParseFS(files, layout, name))
		}
	}
	return set
}

// readFile reads an embedded file.
func readFile(name string) string {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(content)
}
