package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// optionHeading matches the heading of an option in docs/reference.
var optionHeading = regexp.MustCompile("(?m)^### `[a-z]")

// documentFigures counts the documented options and the lines of README's first Caddyfile.
func documentFigures(folder string) ([]figure, error) {
	options, err1 := countOptions(filepath.Join(folder, "docs", "reference", "*.md"))
	readme, err2 := readIfExists(filepath.Join(folder, "README.md"))
	_, first, _ := strings.Cut(readme, "```caddyfile\n")
	first, _, _ = strings.Cut(first, "```")
	return []figure{
		{name: "options documented", value: options},
		{name: "lines of README's first Caddyfile", value: strings.Count(first, "\n")},
	}, errors.Join(err1, err2)
}

// countOptions returns the number of option headings in the files that match a pattern.
func countOptions(pattern string) (n int, err error) {
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		n, err = n+len(optionHeading.FindAll(text, -1)), errors.Join(err, readErr)
	}
	return n, err
}

func readIfExists(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}
