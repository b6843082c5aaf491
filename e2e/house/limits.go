package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A figure is what the house is held to: how much there is of something, and where most of it.
type figure struct {
	name  string
	value int
	where string
}

// A limit is the most that a figure may be, by its name.
type limits map[string]int

// readLimits reads lines of a number and the name of a figure. Empty lines, and those that begin with #, say nothing.
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

// check is an error that names each figure over its limit, and each limit that is of no figure.
func (l limits) check(figures []figure) error {
	var faults []error
	known := map[string]bool{}
	for _, f := range figures {
		known[f.name] = true
		if limit, ok := l[f.name]; ok && f.value > limit {
			faults = append(faults, fmt.Errorf("%s: %d, at most %d (%s)", f.name, f.value, limit, f.where))
		}
	}
	for name := range l {
		if !known[name] {
			faults = append(faults, fmt.Errorf("%s: there is a limit, but no such figure", name))
		}
	}
	return errors.Join(faults...)
}

// printFigures writes each figure beside its limit.
func printFigures(w io.Writer, figures []figure, l limits) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "now\tat most\t\tmost\n")
	for _, f := range figures {
		limit := ""
		if n, ok := l[f.name]; ok {
			limit = strconv.Itoa(n)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", f.value, limit, f.name, f.where)
	}
	return table.Flush()
}

// figures are those that have limits, of the module in a folder.
func (h *house) figures(folder string) ([]figure, error) {
	people, err := words(folder)
	if err != nil {
		return nil, err
	}
	options, err := documentedOptions(folder)
	if err != nil {
		return nil, err
	}
	return append(h.structureFigures(), append(h.sizeFigures(),
		figure{name: "words for people", value: people}, figure{name: "options documented", value: options})...), nil
}

// structureFigures are about types, and files that use each other.
func (h *house) structureFigures() []figure {
	var all room
	var circular, mostFiles figure
	for _, r := range h.rooms {
		if !r.isForTests() {
			all.types = append(all.types, r.types...)
		}
		circular.value += r.circular
		if len(r.files) > mostFiles.value {
			mostFiles = figure{value: len(r.files), where: r.name}
		}
	}
	manyReached, mostReached, wide, embedding := figure{}, figure{}, figure{}, figure{}
	for _, s := range slices.SortedFunc(slices.Values(all.types), func(a, b structure) int { return cmp.Or(b.reached-a.reached, cmp.Compare(a.name, b.name)) }) {
		mostReached = mostReached.most(s.reached, s.name)
		manyReached = manyReached.with(s.reached > manyMethods, s.name)
		wide = wide.with(s.open < s.fields && s.wide > manyFields, s.name)
		embedding = embedding.with(s.shares, s.name)
	}
	return []figure{
		manyReached.named(fmt.Sprintf("types that reach over %d methods", manyMethods)),
		mostReached.named("methods that one type reaches"),
		wide.named(fmt.Sprintf("types that reach over %d fields", manyFields)),
		embedding.named("types that embed one of ours with methods"),
		mostFiles.named("files of one package"),
		circular.named("arrows between files of a package in circles"),
		figure{value: len(h.arrows.inCircles())}.named("arrows between packages in circles"),
		figure{value: len(h.arrows.upward(h.order))}.named("arrows between packages upward"),
	}
}

// sizeFigures are about lines, and what packages export.
func (h *house) sizeFigures() []figure {
	var symbols, code, tests, longFiles, longFunctions figure
	for _, r := range h.rooms {
		if !r.isForTests() && !r.isInternal() {
			symbols.value += r.symbols
		}
		lines, _ := size(r.files)
		code.value += lines
		lines, _ = size(r.tests)
		tests.value += lines
		longFiles = longFiles.counting(over(slices.Clone(r.files), longFile))
		longFunctions = longFunctions.counting(over(slices.Clone(r.functions), longFunction))
	}
	return []figure{
		symbols.named("exported symbols that another module can import"),
		code.named("lines of Go without tests and e2e"),
		tests.named("lines of tests without e2e"),
		longFiles.named(fmt.Sprintf("files over %d lines", longFile)),
		longFunctions.named(fmt.Sprintf("functions over %d lines", longFunction)),
	}
}

func (f figure) named(name string) figure { return figure{name, f.value, f.where} }

// most is the larger of two.
func (f figure) most(value int, where string) figure {
	if value > f.value {
		return figure{value: value, where: where}
	}
	return f
}

// with counts one more if so, and names the first three.
func (f figure) with(yes bool, name string) figure {
	if !yes {
		return f
	}
	if f.value < 3 {
		f.where = strings.TrimPrefix(f.where+", "+name, ", ")
	}
	f.value++
	return f
}

func (f figure) counting(long []span) figure {
	for _, s := range long {
		f = f.with(true, s.name)
	}
	return f
}

// words counts those of README and of the pages in docs, but not of the folders below: they hold evidence.
func words(folder string) (n int, err error) {
	pages, err := filepath.Glob(filepath.Join(folder, "docs", "*.md"))
	if err != nil {
		return 0, err
	}
	for _, page := range append(pages, filepath.Join(folder, "README.md")) {
		text, err := os.ReadFile(page)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n += len(bytes.Fields(text))
	}
	return n, nil
}

// An option has a row in a table of the Caddyfile's reference, which begins with it.
var optionRow = regexp.MustCompile("^\\| `[a-z]")

// documentedOptions counts the rows of the Caddyfile's reference.
func documentedOptions(folder string) (n int, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "docs", "caddyfile.md"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		n += count(optionRow.Match(s.Bytes()))
	}
	return n, nil
}
