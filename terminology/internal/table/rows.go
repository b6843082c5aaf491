package table

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// designations holds the designations of all concepts, as rows: those of concept i are from[i] up to from[i+1]. from is
// nil if there are none.
type designations struct {
	from      offsets
	language  []uint16 // index in languages
	use       []uint16 // index in uses
	value     []codesystem.TextRef
	extension []codesystem.TextRef // JSON arrays of extensions; nil if there are none

	languages []string         // 0 is none
	uses      []codesystem.Use // 0 is none
}

// newDesignations sorts what was read by owner, of which there are n.
func newDesignations(n int, read *codesystem.ConceptReader) designations {
	rows := read.Designations
	if len(rows) == 0 {
		return designations{languages: read.Languages, uses: read.Uses}
	}
	from, order := sortByOwner(n, len(rows), func(i int) (uint32, uint32) { return rows[i].Owner, uint32(i) })
	d := designations{
		from: from, language: make([]uint16, len(rows)),
		use: make([]uint16, len(rows)), value: make([]codesystem.TextRef, len(rows)),
		languages: read.Languages, uses: read.Uses,
	}
	for i, row := range order {
		d.language[i], d.use[i], d.value[i] = rows[row].Language, rows[row].Use, rows[row].Value
		if rows[row].Extension != 0 {
			if d.extension == nil {
				d.extension = make([]codesystem.TextRef, len(rows))
			}
			d.extension[i] = rows[row].Extension
		}
	}
	return d
}

// text returns a designation.
func (d *designations) text(row uint32, texts codesystem.Texts) codesystem.Text {
	text := codesystem.Text{Language: d.languages[d.language[row]], Use: d.uses[d.use[row]], Value: texts.At(d.value[row])}
	if d.extension != nil {
		text.Extension = texts.At(d.extension[row])
	}
	return text
}

// conceptExtensions holds the extensions that answers show, in the order of the concepts. Few concepts have any, so a
// concept's rows are searched for.
type conceptExtensions struct {
	owner []uint32
	kind  []codesystem.ExtensionKind
	value []codesystem.TextRef // value[x] as a JSON member, "valueString":"x"
}

func newConceptExtensions(rows []codesystem.ExtensionRow) conceptExtensions {
	slices.SortStableFunc(rows, func(a, b codesystem.ExtensionRow) int { return int(a.Owner) - int(b.Owner) })
	var x conceptExtensions
	for _, row := range rows {
		x.owner, x.kind, x.value = append(x.owner, row.Owner), append(x.kind, row.Kind), append(x.value, row.Value)
	}
	return x
}

func (x *conceptExtensions) rows(owner uint32) (from, to int) {
	from, _ = slices.BinarySearch(x.owner, owner)
	for to = from; to < len(x.owner) && x.owner[to] == owner; to++ {
	}
	return from, to
}

// get returns a concept's extension of a kind, or 0.
func (x *conceptExtensions) get(owner uint32, kind codesystem.ExtensionKind) codesystem.TextRef {
	from, to := x.rows(owner)
	for row := from; row < to; row++ {
		if x.kind[row] == kind {
			return x.value[row]
		}
	}
	return 0
}
