package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// An option has a row in a table of the Caddyfile's reference, which begins with it.
var optionRow = regexp.MustCompile("(?m)^\\| `[a-z]")

// documentFigures are about what a person has to read.
func documentFigures(folder string) ([]figure, error) {
	reference, err1 := readIfThere(filepath.Join(folder, "docs", "caddyfile.md"))
	readme, err2 := readIfThere(filepath.Join(folder, "README.md"))
	_, first, _ := strings.Cut(readme, "```caddyfile\n")
	first, _, _ = strings.Cut(first, "```")
	return []figure{
		{name: "options documented", value: len(optionRow.FindAllString(reference, -1))},
		{name: "lines of README's first Caddyfile", value: strings.Count(first, "\n")},
	}, errors.Join(err1, err2)
}

func readIfThere(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}
