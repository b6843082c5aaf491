package page

import "embed"

//go:embed style.css scripts templates texts.json
var files embed.FS

// readFile reads an embedded file.
func readFile(name string) string {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(content)
}
