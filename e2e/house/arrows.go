package main

import (
	"cmp"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/tools/go/packages"
)

// An arrow leads from what uses to what is used.
type arrow struct {
	from, to string
}

// arrows are those between packages, or between the files of one.
type arrows map[arrow]bool

func (a arrows) add(from, to string) {
	if from != to {
		a[arrow{from, to}] = true
	}
}

// inCircles are the arrows from whose end a way leads back to their beginning.
func (a arrows) inCircles() (circular []arrow) {
	next := map[string][]string{}
	for arrow := range a {
		next[arrow.from] = append(next[arrow.from], arrow.to)
	}
	for arrow := range a {
		if reaches(next, arrow.to, arrow.from) {
			circular = append(circular, arrow)
		}
	}
	return circular
}

// reaches says whether a way leads from one place to another.
func reaches(next map[string][]string, from, to string) bool {
	seen := map[string]bool{from: true}
	for open := []string{from}; len(open) > 0; open = open[1:] {
		for _, n := range next[open[0]] {
			if !seen[n] {
				seen[n] = true
				open = append(open, n)
			}
		}
	}
	return seen[to]
}

// upward are the arrows that lead up an order from the top down, sorted. A package
// that is not in the order stands where its folder does.
func (a arrows) upward(order []string) (up []arrow) {
	place := func(name string) int {
		for ; name != "."; name = path.Dir(name) {
			if i := slices.Index(order, name); i >= 0 {
				return i
			}
		}
		return len(order)
	}
	for arrow := range maps.Keys(a) {
		if place(arrow.to) < place(arrow.from) {
			up = append(up, arrow)
		}
	}
	slices.SortFunc(up, func(a, b arrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return up
}

// betweenFiles are the arrows between the files of a package.
func betweenFiles(p *packages.Package) arrows {
	found := arrows{}
	for name, object := range p.TypesInfo.Uses {
		if object.Pkg() == p.Types && object.Pos().IsValid() {
			found.add(filepath.Base(p.Fset.File(name.Pos()).Name()), filepath.Base(p.Fset.File(object.Pos()).Name()))
		}
	}
	return found
}
