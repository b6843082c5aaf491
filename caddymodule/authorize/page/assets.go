package page

import (
	"embed"
	"errors"
	"io/fs"
	"maps"
)

//go:embed style.css scripts templates texts.json
var files embed.FS

// sources are the files of this package and of features.
var sources = []fs.FS{files}

// AddFiles adds the pages of a feature: templates/<name>.html, scripts/<name>.js and texts.json, which has the texts that this
// package does not have. It must be called from init.
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

// readFile reads an embedded file of the first source that has it.
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
