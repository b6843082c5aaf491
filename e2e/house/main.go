package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/tools/go/packages"
)

// Whatever has more is listed by name.
const (
	manyMethods  = 25
	manyFields   = 12
	longFile     = 300
	longFunction = 40
)

func main() {
	log.SetFlags(0)
	plan := flag.String("rooms", "", "the `file` that lists the packages from the top down (default: the module's own)")
	held := flag.String("limits", "", "print only the figures that have limits, beside those in this `file` (limits.txt)")
	request := flag.String("passed", "", "print only what a round of this `package:benchmark` passes")
	flag.Parse()
	folder := cmp.Or(flag.Arg(0), "..")
	if room, benchmark, ok := strings.Cut(*request, ":"); ok {
		w, err := passed(folder, room, benchmark)
		if err != nil {
			log.Fatal(err)
		}
		w.print(os.Stdout)
		return
	}
	h, err := measure(folder, cmp.Or(*plan, filepath.Join(folder, "caddymodule", "testdata", "rooms.txt")))
	if err != nil {
		log.Fatal(err)
	}
	if *held == "" {
		h.print(os.Stdout)
		return
	}
	if err := h.printHeld(os.Stdout, folder, *held); err != nil {
		log.Fatal(err)
	}
}

// printHeld writes the figures that have limits.
func (h *house) printHeld(w io.Writer, folder, file string) error {
	l, err := readLimits(file)
	if err != nil {
		return err
	}
	figures, err := h.figures(folder)
	if err != nil {
		return err
	}
	return printFigures(w, figures, l)
}

// A house is a module: its packages, and the arrows between them.
type house struct {
	rooms  []room
	arrows arrows
	order  []string // packages from the top down; none if there is no plan
}

// measure reads the module in a folder.
func measure(folder, plan string) (*house, error) {
	found, err := packages.Load(&packages.Config{
		Dir: folder,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedModule |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}, "./...")
	if err != nil {
		return nil, err
	}
	h := &house{arrows: arrows{}}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		r, err := measureRoom(p)
		if err != nil {
			return nil, err
		}
		h.rooms = append(h.rooms, r)
		for path := range p.Imports {
			if name, ours := strings.CutPrefix(path, p.Module.Path+"/"); ours {
				h.arrows.add(r.name, name)
			}
		}
	}
	h.order, err = readOrder(plan)
	return h, err
}

// readOrder reads the packages that a plan lists, from the top down.
func readOrder(plan string) (order []string, err error) {
	text, err := os.ReadFile(plan)
	if os.IsNotExist(err) {
		return nil, nil
	}
	for line := range strings.Lines(string(text)) {
		if name := strings.TrimRight(line, "\n"); name != "" && !strings.ContainsAny(name[:1], "#\t") {
			order = append(order, name)
		}
	}
	return order, err
}

// print writes all figures.
func (h *house) print(w io.Writer) {
	h.printRooms(w)
	upward := h.arrows.upward(h.order)
	fmt.Fprintf(w, "\nArrows between packages: %d, in circles %d, upward %d\n", len(h.arrows), len(h.arrows.inCircles()), len(upward))
	for _, a := range upward {
		fmt.Fprintf(w, "\t%s imports %s\n", a.from, a.to)
	}
	var all room
	for _, r := range h.rooms {
		all.files = append(all.files, r.files...)
		all.functions = append(all.functions, r.functions...)
		all.types = append(all.types, r.types...)
	}
	f := all.functions
	longest := over(f, longFunction)
	fmt.Fprintf(w, "\nFunctions: %d, median %d lines\n", len(f), f[len(f)/2].lines)
	printLong(w, fmt.Sprintf("Functions over %d lines", longFunction), longest)
	printTypes(w, fmt.Sprintf("Types over %d methods or %d fields", manyMethods, manyFields), all.large(false))
	printTypes(w, "Such types with open fields only", all.large(true))
	printLong(w, fmt.Sprintf("Files over %d lines", longFile), over(all.files, longFile))
}

// printRooms writes a line for each package, and their sums.
func (h *house) printRooms(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "files\tlines\tcode\ttests\tlines\tsymbols\tarrows between files\tin circles\t  package\n")
	var code, tests []room
	for _, r := range h.rooms {
		r.print(table)
		if r.isForTests() {
			tests = append(tests, r)
		} else {
			code = append(code, r)
		}
	}
	sum(code, "packages").print(table)
	sum(tests, "packages for tests").print(table)
	table.Flush()
}

// printLong lists files or functions.
func printLong(w io.Writer, title string, long []span) {
	fmt.Fprintf(w, "\n%s: %d\n", title, len(long))
	for _, s := range slices.Backward(long) {
		fmt.Fprintf(w, "\t%4d %s\n", s.lines, s.name)
	}
}

// printTypes lists types.
func printTypes(w io.Writer, title string, large []structure) {
	fmt.Fprintf(w, "\n%s: %d\n", title, len(large))
	slices.SortFunc(large, func(a, b structure) int { return cmp.Or(b.methods-a.methods, b.fields-a.fields) })
	for _, s := range large {
		fmt.Fprintf(w, "\t%3d methods %3d fields (%2d open)  %s\n", s.methods, s.fields, s.open, s.name)
	}
}
