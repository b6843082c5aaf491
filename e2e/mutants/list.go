package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func readAll(folder string) ([]mutant, error) {
	lists, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		mutants, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(list), err)
		}
		for i := range mutants {
			mutants[i].list = filepath.Base(list)
		}
		all = append(all, mutants...)
	}
	return all, nil
}

func parse(text string) ([]mutant, error) {
	var all []mutant
	var suites []suite // suites for the mutants that follow
	for n, line := range strings.Split(text, "\n") {
		sign, rest, _ := strings.Cut(line, " ")
		switch {
		case sign == "" && rest == "" || strings.HasPrefix(line, "#"):
			continue
		case sign == "=":
			if suites = parseSuites(rest); len(suites) == 0 {
				return nil, fmt.Errorf("line %d: want = and packages", n+1)
			}
		case sign == "@":
			file, removes, ok := strings.Cut(rest, ": ")
			if !ok {
				return nil, fmt.Errorf("line %d: want @ file: what it removes", n+1)
			}
			all = append(all, mutant{file: file, removes: removes, line: n + 1, suites: suites})
		case len(all) == 0 || sign != "-" && sign != "+":
			return nil, fmt.Errorf("line %d: want =, @, - or +", n+1)
		default:
			all[len(all)-1].add(sign, rest)
		}
	}
	return all, nil
}

// add adds a line to the old or new text. sign is "-" or "+".
func (m *mutant) add(sign, line string) {
	if sign == "-" {
		m.old = append(m.old, line)
	} else {
		m.new = append(m.new, line)
	}
}
