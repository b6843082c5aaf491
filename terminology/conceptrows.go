package terminology

import "slices"

// designations holds the designations of all concepts of a code system, as rows: those of concept i are
// the rows from[i] up to from[i+1]. from is nil where there are none.
type designations struct {
	from      []uint32
	language  []uint16 // index in codeSystem.languages; 0 is no language
	use       []uint16 // index in codeSystem.uses; 0 is no use
	value     []textRef
	extension []textRef // JSON array of extensions; nil where no designation has one
}

// rows returns the range of the rows of a concept.
func (d *designations) rows(concept uint32) (from, to uint32) {
	if d.from == nil {
		return 0, 0
	}
	return d.from[concept], d.from[concept+1]
}

// extensionOf returns the extensions of a row as a JSON array, or nil.
func (d *designations) extensionOf(row uint32) textRef {
	if d.extension == nil {
		return 0
	}
	return d.extension[row]
}

// designationUse is Designation.use, a Coding.
type designationUse struct{ system, code, display string }

// designationRow is a designation as it is read.
type designationRow struct {
	owner            uint32
	language, use    uint16
	value, extension textRef
}

// newDesignations brings designations into the order of their owners, of which there are n.
func newDesignations(n int, rows []designationRow) designations {
	if len(rows) == 0 {
		return designations{}
	}
	from, order := sortByOwner(n, len(rows), func(i int) (uint32, uint32) { return rows[i].owner, uint32(i) })
	d := designations{
		from: from, language: make([]uint16, len(rows)),
		use: make([]uint16, len(rows)), value: make([]textRef, len(rows)),
	}
	for i, row := range order {
		d.language[i], d.use[i], d.value[i] = rows[row].language, rows[row].use, rows[row].value
		if rows[row].extension != 0 {
			if d.extension == nil {
				d.extension = make([]textRef, len(rows))
			}
			d.extension[i] = rows[row].extension
		}
	}
	return d
}

// conceptExtensions holds the extensions of concepts that an answer shows, in the order of the concepts.
// Few concepts have any, so a concept's rows are searched for.
type conceptExtensions struct {
	owner []uint32
	kind  []extensionKind
	value []textRef // value[x] as a JSON member, "valueString":"x"
}

// extensionRow is an extension as it is read.
type extensionRow struct {
	owner uint32
	kind  extensionKind
	value textRef
}

// newConceptExtensions brings extensions into the order of their owners.
func newConceptExtensions(rows []extensionRow) conceptExtensions {
	slices.SortStableFunc(rows, func(a, b extensionRow) int { return int(a.owner) - int(b.owner) })
	var x conceptExtensions
	for _, row := range rows {
		x.owner, x.kind, x.value = append(x.owner, row.owner), append(x.kind, row.kind), append(x.value, row.value)
	}
	return x
}

// rows returns the range of the rows of a concept.
func (x *conceptExtensions) rows(owner uint32) (from, to int) {
	if len(x.owner) == 0 {
		return 0, 0
	}
	from, found := slices.BinarySearch(x.owner, owner)
	if !found {
		return 0, 0
	}
	for to = from; to < len(x.owner) && x.owner[to] == owner; to++ {
	}
	return from, to
}

// get returns the value of a concept's extension of the given kind, or 0.
func (x *conceptExtensions) get(owner uint32, kind extensionKind) textRef {
	from, to := x.rows(owner)
	for row := from; row < to; row++ {
		if x.kind[row] == kind {
			return x.value[row]
		}
	}
	return 0
}
