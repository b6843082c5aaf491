package table

import (
	"bytes"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// indexCodes builds the table of codes. A concept that is nested under each of its parents occurs several times:
// repetitions are dropped, and what they say counts for the first occurrence.
func (b *Builder) indexCodes() {
	b.index = newCodeIndex(b.Len())
	first := []uint32(nil) // the first occurrence of each concept, once one was dropped
	kept := uint32(0)
	for concept := range uint32(b.Len()) {
		code := b.codeOf(concept)
		if same, found := b.exact(code); found {
			if first == nil {
				first = identity(b.Len())
			}
			first[concept] = same
			continue
		}
		b.code[kept], b.display[kept] = b.code[concept], b.display[concept]
		b.meaning[kept], b.nestedIn[kept] = b.meaning[concept], b.nestedIn[concept]
		b.index.insert(code, kept)
		if first != nil {
			first[concept] = kept
		}
		kept++
	}
	b.code, b.display = b.code[:kept], b.display[:kept]
	b.meaning, b.nestedIn = b.meaning[:kept], b.nestedIn[:kept]
	if first != nil {
		b.rename(first)
	}
}

func identity(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// rename replaces the concepts in what was read about them.
func (b *Builder) rename(to []uint32) {
	for i, p := range b.pairs {
		b.pairs[i] = pair{from: to[p.from], to: to[p.to]}
	}
	for i := range b.rows {
		b.rows[i].concept = to[b.rows[i].concept]
	}
	for i := range b.reader.Designations {
		row := &b.reader.Designations[i]
		row.Owner = to[row.Owner]
	}
	for i := range b.reader.Extensions {
		row := &b.reader.Extensions[i]
		row.Owner = to[row.Owner]
	}
	for i, parent := range b.nestedIn {
		if parent != noParent {
			b.nestedIn[i] = to[parent]
		}
	}
}

// relate builds the hierarchy from nesting and from the properties parent and child. It ignores values that are no
// concept here.
func (b *Builder) relate() {
	for i, p := range b.properties {
		isParent, isChild := p.Is("parent"), p.Is("child")
		if !isParent && !isChild {
			continue
		}
		for _, row := range b.rows {
			if int(row.property) != i {
				continue
			}
			other, ok := b.exact(b.texts.At(row.value))
			if ok && isParent {
				b.pairs = append(b.pairs, pair{from: other, to: row.concept})
			} else if ok {
				b.pairs = append(b.pairs, pair{from: row.concept, to: other})
			}
		}
	}
	b.children = newRelation(b.Len(), b.pairs)
	b.parents = newRelation(b.Len(), inverse(b.pairs))
}

func (b *Builder) flag() {
	b.flags = slices.Grow(b.flags, b.Len())[:b.Len()]
	clear(b.flags)
	for _, row := range b.rows {
		b.flags[row.concept] |= b.flagsOf(b.properties[row.property], string(b.texts.At(row.value)))
	}
	for _, d := range b.reader.Designations {
		b.flags[d.Owner] |= codesystem.FlagDesignated
	}
	for _, x := range b.reader.Extensions {
		b.flags[x.Owner] |= codesystem.FlagExtended
		if x.Kind == codesystem.ExtensionStandardsStatus {
			b.flags[x.Owner] |= codesystem.FlagStatus
			if bytes.Contains(b.texts.At(x.Value), []byte(`"withdrawn"`)) {
				b.flags[x.Owner] |= codesystem.FlagInactive
			}
		}
	}
}

// flagsOf returns the flags that a property sets.
func (b *Builder) flagsOf(p codesystem.Property, value string) (flags codesystem.Flags) {
	switch {
	case p.Is("notSelectable") && value == "true":
		return codesystem.FlagAbstract
	case p.Is("inactive") && value == "true":
		return codesystem.FlagInactive | codesystem.FlagStatus
	case p.Is("status") && (value == "retired" || value == "inactive"):
		return codesystem.FlagInactive | codesystem.FlagStatus
	case p.Is("status") && !strings.EqualFold(value, "active") && value != "":
		return codesystem.FlagStatus
	case p.Is("deprecated") && value != "false" && value != "", p.Is("deprecationDate") && value != "":
		return codesystem.FlagDeprecated | codesystem.FlagStatus
	}
	return 0
}

// sortedValues returns the properties in the order of the concepts.
func (b *Builder) sortedValues() propertyValues {
	if len(b.rows) == 0 {
		return propertyValues{}
	}
	from, order := sortByOwner(b.Len(), len(b.rows), func(i int) (uint32, uint32) { return b.rows[i].concept, uint32(i) })
	n := len(order)
	values := propertyValues{offsets: from, property: make([]uint16, n), kind: make([]valueKind, n), value: make([]codesystem.TextRef, n)}
	for i, row := range order {
		r := b.rows[row]
		values.property[i], values.kind[i], values.value[i] = r.property, r.kind, r.value
		if r.coding != 0 {
			if values.coding == nil {
				values.coding = make([]codesystem.TextRef, n)
			}
			values.coding[i] = r.coding
		}
	}
	return values
}
