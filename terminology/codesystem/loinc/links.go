package loinc

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// links are the relationships between concepts: property values that are codes. Rows from[i]:from[i+1] have the source i. Rows
// byTarget[to[i]:to[i+1]] have the target i. The arrays contain no pointers, and large ones are off the heap.
type links struct {
	from, to, byTarget []uint32
	source, target     []uint32
	property           []uint16
}

// linkRow is a link in the order of the files.
type linkRow struct {
	source, target uint32
	property       uint16
}

// newLinks returns the links of n concepts. It retains the order per source and drops duplicates.
func newLinks(n int, rows []linkRow) links {
	from, order := table.SortByOwner(n, len(rows), func(i int) (owner, row uint32) { return rows[i].source, uint32(i) })
	l := links{from: from}
	seen := make(map[linkRow]bool)
	for source := range uint32(n) {
		list := order[from[source]:from[source+1]]
		from[source] = uint32(len(l.source))
		if len(seen) > 100 {
			seen = make(map[linkRow]bool) // to clear a large map takes long, even if few rows follow
		}
		clear(seen)
		for _, i := range list {
			if row := rows[i]; !seen[row] {
				seen[row] = true
				l.source, l.target, l.property = append(l.source, row.source), append(l.target, row.target), append(l.property, row.property)
			}
		}
	}
	from[n] = uint32(len(l.source))
	l.to, l.byTarget = table.SortByOwner(n, len(l.target), func(i int) (owner, row uint32) { return l.target[i], uint32(i) })
	return l
}

// moveOffHeap moves large arrays to m.
func (l *links) moveOffHeap(m *offheap.Memory) {
	l.source, l.target, l.property = slices.Clip(l.source), slices.Clip(l.target), slices.Clip(l.property)
	offheap.Move(m, &l.from, &l.to, &l.byTarget, &l.source, &l.target)
	offheap.Move(m, &l.property)
}

// each calls visit with the concepts to which a property links a concept. If reverse is true, they are those that link to it.
func (l *links) each(concept uint32, property uint16, reverse bool, visit func(other uint32)) {
	if !reverse {
		for row := l.from[concept]; row < l.from[concept+1]; row++ {
			if l.property[row] == property {
				visit(l.target[row])
			}
		}
		return
	}
	for _, row := range l.byTarget[l.to[concept]:l.to[concept+1]] {
		if l.property[row] == property {
			visit(l.source[row])
		}
	}
}

// hasLink reports whether a property links a concept to any other.
func (l *links) hasLink(concept uint32, property uint16) (found bool) {
	l.each(concept, property, false, func(uint32) { found = true })
	return found
}

// addLinked adds the concepts that [links.each] visits to a set. It charges the cost with spend.
func (l *links) addLinked(set bitset.Set, concept uint32, property uint16, reverse bool, spend func(steps int) error) error {
	rows := l.from
	if reverse {
		rows = l.to
	}
	l.each(concept, property, reverse, set.Add)
	return spend(1 + int(rows[concept+1]-rows[concept]))
}
