package table

import (
	"bytes"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// source is what was read of a code system.
type source struct {
	concepts   concepts
	reader     codesystem.ConceptReader
	properties propertyRows
	pairs      []pair // parent, child
}

// reset drops what was read, but for memory. What a table shares begins anew.
func (s *source) reset() {
	c := &s.concepts
	s.concepts = concepts{
		texts: c.texts[:0], code: c.code[:0], display: c.display[:0], meaning: c.meaning[:0], nestedIn: c.nestedIn[:0], flags: c.flags[:0],
	}
	s.reader.Reset()
	s.properties = propertyRows{rows: s.properties.rows[:0]}
	s.pairs = s.pairs[:0]
}

// indexCodes builds the table of codes. A concept that is nested under each of its parents occurs several times:
// repetitions are dropped, and what they say counts for the first occurrence.
func (s *source) indexCodes() {
	s.concepts.index = newCodeIndex(s.concepts.len())
	first := []uint32(nil) // the first occurrence of each concept, once one was dropped
	kept := uint32(0)
	for concept := range uint32(s.concepts.len()) {
		code := s.concepts.codeOf(concept)
		if same, found := s.concepts.exact(code); found {
			if first == nil {
				first = identity(s.concepts.len())
			}
			first[concept] = same
			continue
		}
		s.concepts.code[kept], s.concepts.display[kept] = s.concepts.code[concept], s.concepts.display[concept]
		s.concepts.meaning[kept], s.concepts.nestedIn[kept] = s.concepts.meaning[concept], s.concepts.nestedIn[concept]
		s.concepts.index.insert(code, kept)
		if first != nil {
			first[concept] = kept
		}
		kept++
	}
	s.concepts.code, s.concepts.display = s.concepts.code[:kept], s.concepts.display[:kept]
	s.concepts.meaning, s.concepts.nestedIn = s.concepts.meaning[:kept], s.concepts.nestedIn[:kept]
	if first != nil {
		s.rename(first)
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
func (s *source) rename(to []uint32) {
	for i, p := range s.pairs {
		s.pairs[i] = pair{from: to[p.from], to: to[p.to]}
	}
	for i := range s.properties.rows {
		s.properties.rows[i].concept = to[s.properties.rows[i].concept]
	}
	for i := range s.reader.Designations {
		row := &s.reader.Designations[i]
		row.Owner = to[row.Owner]
	}
	for i := range s.reader.Extensions {
		row := &s.reader.Extensions[i]
		row.Owner = to[row.Owner]
	}
	for i, parent := range s.concepts.nestedIn {
		if parent != noParent {
			s.concepts.nestedIn[i] = to[parent]
		}
	}
}

// relate adds the properties parent and child to the pairs. It ignores values that are no concept here.
func (s *source) relate() {
	for i, p := range s.properties.list {
		isParent, isChild := p.Is("parent"), p.Is("child")
		if !isParent && !isChild {
			continue
		}
		for _, row := range s.properties.rows {
			if int(row.property) != i {
				continue
			}
			other, ok := s.concepts.exact(s.concepts.texts.At(row.value))
			if ok && isParent {
				s.pairs = append(s.pairs, pair{from: other, to: row.concept})
			} else if ok {
				s.pairs = append(s.pairs, pair{from: row.concept, to: other})
			}
		}
	}
}

func (s *source) flag() {
	s.concepts.flags = slices.Grow(s.concepts.flags, s.concepts.len())[:s.concepts.len()]
	clear(s.concepts.flags)
	for _, row := range s.properties.rows {
		s.concepts.flags[row.concept] |= flagsOf(s.properties.list[row.property], string(s.concepts.texts.At(row.value)))
	}
	for _, d := range s.reader.Designations {
		s.concepts.flags[d.Owner] |= codesystem.FlagDesignated
	}
	for _, x := range s.reader.Extensions {
		s.concepts.flags[x.Owner] |= codesystem.FlagExtended
		if x.Kind == codesystem.ExtensionStandardsStatus {
			s.concepts.flags[x.Owner] |= codesystem.FlagStatus
			if bytes.Contains(s.concepts.texts.At(x.Value), []byte(`"withdrawn"`)) {
				s.concepts.flags[x.Owner] |= codesystem.FlagInactive
			}
		}
	}
}

// flagsOf returns the flags that a property sets.
func flagsOf(p codesystem.Property, value string) (flags codesystem.Flags) {
	switch {
	case p.Is("notSelectable") && value == "true":
		return codesystem.FlagAbstract
	case p.Is("user-assigned") && value == "true":
		return codesystem.FlagUserAssigned
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
