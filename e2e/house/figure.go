package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A figure is a measured value and its largest contributor.
type figure struct {
	name  string
	value int
	where string
}

// targets are the goals for figures: maximum values, but for features a minimum.
var targets = map[string]int{
	"lines linked by fhir_outcome": 3_500, "lines linked by fhir_bearer": 38_000,
	"lines linked by fhir_expand": 36_000, "lines linked by fhir_authorize": 50_000,
	"features":                          18,
	"lines of Go":                       90_000,
	"lines of tests":                    78_000,
	"options documented":                130,
	"lines of README's first Caddyfile": 20,
}

// limits are the maximum values of figures by name.
type limits map[string]int

// readLimits parses lines that consist of a number and the name of a figure. It ignores empty lines and comments (#).
func readLimits(file string) (limits, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	l := limits{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		number, name, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		l[strings.TrimSpace(name)] = n
	}
	return l, nil
}

// check returns an error that lists the figures that exceed their limit, and the limits without a figure.
func (l limits) check(figures []figure) error {
	var faults []error
	measured := map[string]bool{}
	for _, f := range figures {
		measured[f.name] = true
		if limit, ok := l[f.name]; ok && f.value > limit {
			faults = append(faults, fmt.Errorf("%s: %d, at most %d (%s)", f.name, f.value, limit, f.where))
		}
	}
	for name := range l {
		if !measured[name] {
			faults = append(faults, fmt.Errorf("%s: there is a limit, but no such figure", name))
		}
	}
	return errors.Join(faults...)
}

// printFigures prints each figure with its target and limit.
func printFigures(w io.Writer, figures []figure, l limits) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "now\ttarget\tlimit\t\tmost\n")
	for _, f := range figures {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", f.value, formatNumber(targets, f.name), formatNumber(l, f.name), f.name, f.where)
	}
	return table.Flush()
}

func formatNumber(numbers map[string]int, name string) string {
	if n, ok := numbers[name]; ok {
		return strconv.Itoa(n)
	}
	return ""
}
