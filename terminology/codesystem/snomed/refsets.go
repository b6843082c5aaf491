package snomed

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// refset is a reference set or an identifier scheme. It contains only rows for concepts. Language reference sets are part of
// [descriptions].
type refset struct {
	columns []column // additional columns

	// Rows are sorted by component. Columns of row i are cells[i*len(columns):(i+1)*len(columns)].
	component []uint32
	active    []bool
	module    []uint16
	effective []date
	cells     []uint32
}

// column is an additional column of a reference set.
type column struct {
	name string
	kind byte // c: component, i: integer, s: string, as in the names of files
}

// textCell marks a cell with a text. Besides the cells of string columns, these are integers out of range and identifiers that are
// not concepts of the edition.
const textCell = 1 << 31

// row returns the cells of a row.
func (x *refset) row(row int) []uint32 {
	return x.cells[row*len(x.columns) : (row+1)*len(x.columns)]
}

// isScheme reports whether x contains the alternate identifiers of a scheme (RF2 §4.2.4), which have the format of a map.
func (x *refset) isScheme() bool { return len(x.columns) == 1 && x.columns[0].name == identifierColumn }

// identifierColumn is the only additional column of identifier files.
const identifierColumn = "alternateIdentifier"

// rowsOf returns the rows with a component.
func (x *refset) rowsOf(component uint32) (from, to int) {
	return findOwner(x.component, component)
}

// columnIndex returns the index of an additional column, or -1.
func (x *refset) columnIndex(name string) int {
	return slices.IndexFunc(x.columns, func(c column) bool { return strings.EqualFold(c.name, name) })
}

// refsetLoader reads reference sets of any type.
type refsetLoader struct {
	loader *loader
	sets   map[sctid]*refset
	texts  codesystem.Texts
	known  map[string]codesystem.TextRef // texts that rows repeat, such as map advice

	dangling int // number of rows for concepts that the release does not contain
}

// conceptPartition is the last digit of the partition in the identifier of a concept (00 or 10).
const conceptPartition = 0

// maxKnownText is the maximum length in bytes of texts that are stored only once.
const maxKnownText = 128

// read reads a file of reference sets or of alternate identifiers.
func (l *refsetLoader) read(file string) error {
	common := []string{"effectiveTime", "active", "moduleId", "refsetId", "referencedComponentId"}
	if kindOf(file) == identifierFile {
		common[3] = "identifierSchemeId"
	}
	f, at, err := openRF2(l.loader.release, file, common...)
	if err != nil {
		return err
	}
	columns, indexes := additionalColumns(f, file, common)
	var last *refset
	var lastID sctid
	return f.each(func() error {
		id, err := f.sctid(at[3])
		if err != nil {
			return err
		}
		component, err := f.sctid(at[4])
		if err != nil {
			return err
		}
		if id != lastID {
			lastID, last = id, l.set(id, columns)
		}
		number := l.loader.index.find(component)
		if number == none {
			if component/10%10 == conceptPartition {
				l.dangling++
			}
			return nil // a description, or a concept that the release leaves out
		}
		if len(last.component) == 0 {
			last.columns = columns
		}
		if !slices.Equal(last.columns, columns) {
			return f.errorf("the reference set %d has other columns in another file", id)
		}
		return l.addRow(f, at, last, number, indexes)
	})
}

// additionalColumns returns the columns of a reference set after the common ones. The name of the file contains their types.
func additionalColumns(f *rf2File, file string, common []string) (columns []column, indexes []int) {
	for i, name := range f.columns {
		isCommon := slices.ContainsFunc(common, func(common string) bool { return strings.EqualFold(common, name) })
		if !isCommon && !strings.EqualFold(name, "id") {
			columns, indexes = append(columns, column{name: name, kind: 's'}), append(indexes, i)
		}
	}
	kinds := strings.TrimSuffix(strings.Split(strings.TrimPrefix(path.Base(file), "x"), "_")[1], "Refset")
	if len(kinds) == len(columns) && strings.Trim(kinds, "cis") == "" {
		for i := range columns {
			columns[i].kind = kinds[i]
		}
	}
	return columns, indexes
}

// addOthers adds language reference sets and the module dependency reference set, without rows.
func (l *refsetLoader) addOthers() {
	for _, d := range l.loader.descriptions.rows.dialects {
		l.set(d.refset, nil)
	}
	if len(l.loader.dependencies) > 0 {
		l.set(moduleDependency, nil)
	}
}

func (l *refsetLoader) set(id sctid, columns []column) *refset {
	x := l.sets[id]
	if x == nil {
		x = &refset{columns: columns}
		l.sets[id] = x
	}
	return x
}

func (l *refsetLoader) addRow(f *rf2File, at []int, x *refset, component uint32, indexes []int) error {
	effective, active, module, err := l.loader.status(f, at)
	if err != nil {
		return err
	}
	x.component, x.active = append(x.component, component), append(x.active, active)
	x.module, x.effective = append(x.module, module), append(x.effective, effective)
	for i, field := range indexes {
		x.cells = append(x.cells, l.cell(f.fields[field], x.columns[i].kind))
	}
	return nil
}

// cell returns a field as the number of a concept, an integer, or a text with the mark textCell.
func (l *refsetLoader) cell(text []byte, kind byte) uint32 {
	switch kind {
	case 'i':
		if n, ok := parseNumber(text, textCell); ok {
			return n
		}
	case 'c':
		if id, ok := parseSCTID(text); ok {
			if number := l.loader.index.find(id); number != none {
				return number
			}
		}
	}
	return uint32(l.text(text)) | textCell
}

func (l *refsetLoader) text(text []byte) codesystem.TextRef {
	text = bytes.TrimSpace(text)
	if len(text) > maxKnownText {
		return l.texts.Append(text)
	}
	ref, ok := l.known[string(text)]
	if !ok {
		ref = l.texts.Append(text)
		l.known[string(text)] = ref
	}
	return ref
}

// sort numbers the concepts again and sorts each reference set by component.
func (l *refsetLoader) sort(position []uint32) {
	for _, x := range l.sets {
		for i, component := range x.component {
			x.component[i] = position[component]
		}
		for i, cell := range x.cells {
			if x.columns[i%len(x.columns)].kind == 'c' && cell&textCell == 0 {
				x.cells[i] = position[cell]
			}
		}
		order := make([]uint32, len(x.component))
		for i := range order {
			order[i] = uint32(i)
		}
		slices.SortStableFunc(order, func(a, b uint32) int { return int(x.component[a]) - int(x.component[b]) })
		sorted := &refset{
			columns: x.columns, component: permute(x.component, order), active: permute(x.active, order),
			module: permute(x.module, order), effective: permute(x.effective, order), cells: make([]uint32, 0, len(x.cells)),
		}
		for _, row := range order {
			sorted.cells = append(sorted.cells, x.row(int(row))...)
		}
		*x = *sorted
	}
}
