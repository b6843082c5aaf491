package snomed

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// eclContent implements [ecl.Content] for a system. It contains frequently read data in the form that the evaluator needs.
type eclContent struct {
	snapshot      *snapshot
	concrete      ecl.ConcreteValues
	refsetNumbers []uint32          // concepts that are reference sets, in ascending order
	byNumber      map[uint32]refset // by concept

	withDefinition bitset.Set        // concepts with a text definition
	alternates     map[string]uint32 // concepts by alternate identifier, such as loinc#718-7
}

// Concepts that only constraints refer to.
const (
	primitiveStatus sctid = 900000000000074008
	acceptableValue sctid = 900000000000549004
)

func newECLContent(s *snapshot) *eclContent {
	a := &s.attributes
	c := &eclContent{
		snapshot: s, byNumber: make(map[uint32]refset), alternates: make(map[string]uint32), withDefinition: bitset.New(s.table.Len()),
		concrete: ecl.ConcreteValues{Source: a.concreteSource, Type: a.concreteKind, Group: a.concreteGroup, Value: func(row int) []byte {
			return a.texts.At(a.concreteValue[row])
		}},
	}
	for concept := range uint32(s.table.Len()) {
		if s.table.Definition(codesystem.ConceptAt(concept)) != nil {
			c.withDefinition.Add(concept)
		}
	}
	s.withRefsets().Each(func(concept uint32) {
		if x := s.refsets[sctid(c.ID(concept))]; len(x.component) > 0 {
			c.refsetNumbers = append(c.refsetNumbers, concept)
			c.byNumber[concept] = *x
		}
	})
	for _, id := range slices.Sorted(maps.Keys(s.refsets)) {
		if scheme := s.concept(id); scheme != none && s.refsets[id].isScheme() {
			c.addAlternates(scheme, s.refsets[id])
		}
	}
	return c
}

// addAlternates adds the identifiers of a scheme. ECL does not define the aliases of schemes: they are the first words of their
// terms, such as LOINC for "LOINC code identifier".
func (c *eclContent) addAlternates(scheme uint32, x *refset) {
	for _, text := range c.snapshot.table.AppendTexts(nil, codesystem.ConceptAt(scheme)) {
		alias, _, _ := strings.Cut(strings.ToLower(string(text.Value)), " ")
		for row, component := range x.component {
			if x.active[row] {
				c.alternates[alias+"#"+string(c.snapshot.cellText(x.row(row)[0], 's'))] = component
			}
		}
	}
}

// Len and the following methods implement [ecl.Content].
func (c *eclContent) Len() int                         { return c.snapshot.table.Len() }
func (c *eclContent) Parents(concept uint32) []uint32  { return c.snapshot.table.Parents(concept) }
func (c *eclContent) Children(concept uint32) []uint32 { return c.snapshot.table.Children(concept) }

func (c *eclContent) Number(id uint64) (concept uint32, ok bool) {
	concept = c.snapshot.concept(sctid(id))
	return concept, concept != none
}

func (c *eclContent) ID(concept uint32) uint64 {
	id, _ := parseSCTID(c.snapshot.code(concept))
	return uint64(id)
}

func (c *eclContent) AlternateIdentifier(scheme, code string) (concept uint32, ok bool) {
	concept, ok = c.alternates[strings.ToLower(scheme)+"#"+code]
	return concept, ok
}

func (c *eclContent) Active() bitset.Set                  { return c.snapshot.active }
func (c *eclContent) Relationships() *ecl.Relationships   { return &c.snapshot.attributes.rows }
func (c *eclContent) ConcreteValues() *ecl.ConcreteValues { return &c.concrete }
func (c *eclContent) Refsets() []uint32                   { return c.refsetNumbers }

func (c *eclContent) Members(refset uint32) (members []uint32) {
	x := c.byNumber[refset]
	members = slices.Grow(members, len(x.component))
	for row, component := range x.component {
		if x.active[row] {
			members = append(members, component)
		}
	}
	return members
}

func (c *eclContent) MemberFields(refset uint32) (names []string) {
	for _, column := range c.byNumber[refset].columns {
		names = append(names, column.name)
	}
	return names
}

func (c *eclContent) EachMember(refset uint32, visit func(m *ecl.Member) bool) {
	x := c.byNumber[refset]
	m := ecl.Member{Fields: make([][]byte, len(x.columns))}
	for row := range x.component {
		m.Component, m.Module = x.component[row], c.snapshot.modules[x.module[row]]
		m.EffectiveTime, m.Active = x.effective[row].number(), x.active[row]
		for i, cell := range x.row(row) {
			m.Fields[i] = c.snapshot.cellText(cell, x.columns[i].kind)
		}
		if !visit(&m) {
			return
		}
	}
}

func (c *eclContent) Associations(refset uint32) (components, targets []uint32) {
	x := c.byNumber[refset]
	column := x.columnIndex(associationColumn)
	if column < 0 || x.columns[column].kind != 'c' {
		return nil, nil
	}
	for row, component := range x.component {
		if !x.active[row] {
			continue
		}
		target := x.row(row)[column]
		if target&textCell != 0 {
			target = ecl.NoConcept
		}
		components, targets = append(components, component), append(targets, target)
	}
	return components, targets
}

func (c *eclContent) EachDescription(concept uint32, visit func(d *ecl.Description) bool) {
	d := &c.snapshot.descriptions
	var x ecl.Description
	for row, end := d.rows(concept); row < end; row++ {
		x = ecl.Description{
			ID: d.id[row], Term: c.snapshot.table.TextAt(d.term[row]), Language: d.languages[d.language[row]], Type: uint64(descriptionTypes[d.flags[row]&typeMask]),
			Module: c.snapshot.modules[d.module[row]], EffectiveTime: d.effective[row].number(), Active: d.flags[row]&isInactive == 0, Dialects: x.Dialects[:0],
		}
		for _, value := range d.acceptabilities(row) {
			dialect := ecl.Dialect{Refset: uint64(d.dialects[value&^isPreferred].refset), Acceptability: uint64(acceptableValue)}
			if value&isPreferred != 0 {
				dialect.Acceptability = uint64(preferred)
			}
			x.Dialects = append(x.Dialects, dialect)
		}
		if !visit(&x) {
			return
		}
	}
}

func (c *eclContent) FindWords(words []string, spend func(int) error) (bitset.Set, bool, error) {
	found := c.snapshot.table.SearchIndex("").WithWords(words)
	found.Union(c.withDefinition) // definitions are not in the index
	return found, true, spend((1 + len(words)) * c.Len() / 64)
}

func (c *eclContent) Metadata(concept uint32) ecl.Metadata {
	m := ecl.Metadata{Module: c.snapshot.modules[c.snapshot.module[concept]], DefinitionStatus: uint64(primitiveStatus), EffectiveTime: c.snapshot.effective[concept].number()}
	if c.snapshot.defined.Has(concept) {
		m.DefinitionStatus = uint64(fullyDefined)
	}
	return m
}

// number returns the date as a number such as 20260801, or 0 for an empty date.
func (d date) number() uint32 {
	if d == 0 {
		return 0
	}
	return (minYear+uint32(d>>9))*10000 + uint32(d>>5&15)*100 + uint32(d&31)
}

var (
	_ ecl.Content                = (*eclContent)(nil)
	_ codesystem.FilterEvaluator = (*System)(nil)
)
