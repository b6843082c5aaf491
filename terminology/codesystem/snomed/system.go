package snomed

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// URL is the URL of SNOMED CT.
const URL = "http://snomed.info/sct"

// System is a version of an edition of SNOMED CT as a code system: a table of concepts with expressions, computed properties and
// filters.
type System struct {
	*table.Table
	snapshot    *snapshot
	properties  *properties
	constraints *constraints
}

// build returns the system of the files that were read.
func (l *loader) build() (*System, error) {
	order, err := l.sortConcepts()
	if err != nil {
		return nil, err
	}
	e, err := l.edition()
	if err != nil {
		return nil, err
	}
	position := make([]uint32, len(order))
	for number, old := range order {
		position[old] = uint32(number)
	}
	l.refsets.addOthers()
	if l.refsets.sort(position); len(l.refsets.texts) >= textCell {
		return nil, errors.New("more than 2 GiB of text in reference sets")
	}
	s := &snapshot{edition: e, refsets: l.refsets.sets, refsetTexts: l.refsets.texts, descriptions: l.descriptions.sorted(position)}
	for _, id := range l.modules.ids {
		s.modules = append(s.modules, uint64(id))
	}
	s.module, s.effective = permute(l.concepts.module, order), permute(l.concepts.effective, order)
	s.active, s.defined = setOf(permute(l.concepts.active, order)), setOf(permute(l.concepts.defined, order))
	s.attributes = l.sortedAttributes(position)
	if s.table, err = l.buildTable(s, order, position); err != nil {
		return nil, err
	}
	s.moveOffHeap()
	return &System{Table: s.table, snapshot: s, properties: newProperties(s), constraints: newConstraints(s)}, nil
}

// setOf returns the set of the indexes of true values.
func setOf(values []bool) bitset.Set {
	set := bitset.New(len(values))
	for i, value := range values {
		if value {
			set.Add(uint32(i))
		}
	}
	return set
}

// sortedAttributes returns the relationships sorted by source and destination.
func (l *loader) sortedAttributes(position []uint32) attributes {
	r := &l.attributes
	for _, column := range [][]uint32{r.Source, r.Type, r.Destination, l.concrete.source, l.concrete.kind} {
		for i, old := range column {
			column[i] = position[old]
		}
	}
	from, order := groupByOwner(len(position), r.Source)
	for source := range position {
		slices.SortStableFunc(order[from[source]:from[source+1]], func(a, b uint32) int { return int(r.Group[a]) - int(r.Group[b]) })
	}
	a := attributes{rows: ecl.Relationships{
		From: from, Source: permute(r.Source, order), Type: permute(r.Type, order), Destination: permute(r.Destination, order), Group: permute(r.Group, order),
	}}
	a.rows.To, a.rows.ByDestination = groupByOwner(len(position), a.rows.Destination)
	_, order = groupByOwner(len(position), l.concrete.source)
	a.concreteSource, a.concreteKind = permute(l.concrete.source, order), permute(l.concrete.kind, order)
	a.concreteGroup, a.concreteValue, a.texts = permute(l.concrete.group, order), permute(l.concrete.value, order), l.concrete.texts
	used := bitset.New(len(position))
	for _, kinds := range [][]uint32{a.rows.Type, a.concreteKind} {
		for _, kind := range kinds {
			used.Add(kind)
		}
	}
	used.Each(func(kind uint32) { a.kinds = append(a.kinds, kind) })
	return a
}

// Uses of designations.
var (
	fsnUse     = codesystem.Use{System: URL, Code: strconv.Itoa(int(fsnType)), Display: "Fully specified name"}
	synonymUse = codesystem.Synonym
)

// buildTable returns the table of concepts, terms and is-a relationships.
func (l *loader) buildTable(s *snapshot, order, position []uint32) (*table.Table, error) {
	d := &s.descriptions
	dialects := d.defaultDialects(func(refset sctid) bool {
		at := l.index.find(refset)
		return at != none && l.modules.ids[l.concepts.module[at]] != coreModule
	})
	s.tags = []string{displayLanguage}
	for number, old := range order {
		flags := codesystem.Flags(0)
		if !l.concepts.active[old] {
			flags = codesystem.FlagInactive | codesystem.FlagHasStatus
		}
		display, definition := l.addTexts(s, uint32(number), d.displayRow(uint32(number), dialects))
		l.table.AddConcept(strconv.AppendUint(nil, uint64(l.index.ids[old]), 10), display, definition, flags)
	}
	for _, e := range l.isA {
		l.table.AddParent(position[e.child], position[e.parent])
	}
	return l.table.Build(displayLanguage, true)
}

// displayLanguage is the language of displays unless another one is requested.
const displayLanguage = "en"

// addTexts adds the active descriptions of a concept as designations, except the display, and returns the display and the
// definition.
func (l *loader) addTexts(s *snapshot, concept, displayRow uint32) (display, definition codesystem.TextRef) {
	d := &s.descriptions
	from, to := d.rows(concept)
	for row := from; row < to && d.flags[row]&isInactive == 0; row++ {
		switch {
		case row == displayRow:
			display = d.term[row]
		case d.flags[row] != isDefinition:
			use, tag := synonymUse, d.tagOf(row)
			if d.flags[row] == isFSN {
				use = fsnUse
			}
			l.table.AddDesignation(concept, tag, use, d.term[row])
			definitions.AppendUnique(&s.tags, tag)
		case definition == 0:
			definition = d.term[row]
		}
	}
	return display, definition
}

// SearchIndex returns the search index for a list of languages. If all texts are English, lists that change no displays share an
// index: a browser requests en-US, which must not double the memory. Texts in other dialects remain searchable.
func (s *System) SearchIndex(list string) *textindex.Index {
	tags := s.snapshot.tags
	languages := codesystem.ParseLanguages(list)
	key := []byte(languages.Key(tags)) // begins with the similarity of each tag to the first available language
	isForeign := func(tag string) bool { return !strings.HasPrefix(tag, displayLanguage) }
	if len(key) > len(tags) && key[0] > 0 && key[0] == slices.Max(key[:len(tags)]) && !slices.ContainsFunc(tags, isForeign) {
		list = ""
	}
	return s.Table.SearchIndex(list)
}
