package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// variant is a mutated body of a function.
type variant struct {
	function
	number int // number of the mutant, from 1
	text   string
}

// variants returns the variants of all mutants by file. The error lists all invalid mutants.
func variants(root string, all []mutant) (map[string][]variant, error) {
	byFile := map[string][]variant{}
	var wrong []error
	for n, m := range all {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			wrong = append(wrong, m.fail(err))
			continue
		}
		f, text, err := m.changed(string(source))
		wrong = append(wrong, err)
		byFile[m.file] = append(byFile[m.file], variant{f, n + 1, text})
	}
	return byFile, errors.Join(wrong...)
}

// merged returns a file in which each mutated function contains all its variants. Functions are replaced from last to first, so
// that positions remain valid.
func merged(source string, all []variant) string {
	slices.SortStableFunc(all, func(a, b variant) int { return cmp.Compare(b.start, a.start) })
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].start == all[0].start {
			n++
		}
		source = source[:all[0].body] + choice(all[:n], all[0].block(source)) + source[all[0].end:]
		all = all[n:]
	}
	return source
}

// choice returns a function body that selects one of the variants at run time. The default is the original body.
func choice(all []variant, body string) string {
	var b strings.Builder
	b.WriteString("{\n\tswitch mutantInForce {\n")
	for _, v := range all {
		fmt.Fprintf(&b, "\tcase %d:\n%s\n", v.number, v.text)
		if !v.hasResults {
			b.WriteString("\treturn\n")
		}
	}
	b.WriteString("\t}\n" + body + "\n}")
	return b.String()
}

// switchFile is the source of a file that declares the number of the active mutant.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var mutantInForce, _ = strconv.Atoi(os.Getenv("MUTANT"))
`

// writeOverlay writes the mutated files and an overlay for the go command into folder. It returns the path of the overlay file.
func writeOverlay(folder, root string, all []mutant) (string, error) {
	byFile, err := variants(root, all)
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	write := func(file, text string) error {
		at := filepath.Join(folder, fmt.Sprintf("%d.go", len(replaced)))
		replaced[filepath.Join(root, file)] = at
		return os.WriteFile(at, []byte(text), 0o600)
	}
	for file, of := range byFile {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		if err := write(file, merged(string(source), of)); err != nil {
			return "", err
		}
		at := filepath.Join(filepath.Dir(file), "mutantinforce.go")
		if replaced[filepath.Join(root, at)] != "" {
			continue
		}
		if err := write(at, fmt.Sprintf(switchFile, packageOf(string(source)))); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list := filepath.Join(folder, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// packageOf returns the name in a file's package clause.
func packageOf(source string) string {
	_, rest, _ := strings.Cut("\n"+source, "\npackage ")
	name, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(name)
}
