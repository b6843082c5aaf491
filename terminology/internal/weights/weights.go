package weights

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// maxCodes bounds the codes of all files.
const maxCodes = 2_000_000

var errTooMany = fmt.Errorf("more than %d codes with weights in all", maxCodes)

// Weights are tables by the url of what they are for. The zero value and nil hold none.
type Weights struct {
	tables map[string]*Table
	rows   int
}

// Of returns the table for a code system or value set; nil if there is none.
func (w *Weights) Of(url string) *Table {
	if w == nil {
		return nil
	}
	return w.tables[url]
}

// All yields the tables by their urls, in the order of these.
func (w *Weights) All() iter.Seq2[string, *Table] {
	return func(yield func(string, *Table) bool) {
		if w == nil {
			return
		}
		for _, url := range slices.Sorted(maps.Keys(w.tables)) {
			if !yield(url, w.tables[url]) {
				return
			}
		}
	}
}

// add adds to the weight of a code.
func (w *Weights) add(url, code string, weight float64) error {
	t := w.tables[url]
	if t == nil {
		if w.tables == nil {
			w.tables = map[string]*Table{}
		}
		t = &Table{weights: map[string]float64{}}
		w.tables[url] = t
	}
	if _, ok := t.weights[code]; !ok {
		if w.rows++; w.rows > maxCodes {
			return errTooMany
		}
	}
	t.weights[code] += weight
	return nil
}

// Table is the weights of the codes of a code system or value set. A nil one holds none.
type Table struct{ weights map[string]float64 }

// Len returns the number of codes.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.weights)
}

// Weight returns the weight of a code; 0 if it has none.
func (t *Table) Weight(code []byte) float64 {
	if t == nil {
		return 0
	}
	return t.weights[string(code)]
}

// All yields the codes with their weights, in the order of the codes.
func (t *Table) All() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		if t == nil {
			return
		}
		for _, code := range slices.Sorted(maps.Keys(t.weights)) {
			if !yield(code, t.weights[code]) {
				return
			}
		}
	}
}
