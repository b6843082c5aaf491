package ecl

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// model is a small edition as plain lists. The naive evaluator reads the lists; memoryContent indexes them for the evaluator.
type model struct {
	concepts     []modelConcept
	isA          [][2]int // child, parent
	relations    []modelRelation
	values       []modelValue
	descriptions []modelDescription
	rows         []modelRow
	columns      map[int][]string // by reference set
	alternates   map[string]int
}

type modelConcept struct {
	id     uint64
	active bool
	Metadata
}

type modelRelation struct {
	source, kind, destination int
	group                     uint16
}

type modelValue struct {
	source, kind int
	group        uint16
	value        string
}

type modelDescription struct {
	concept int
	Description
}

type modelRow struct {
	refset, component int
	active            bool
	module            uint64
	time              uint32
	fields            []string
}

// memoryContent is the Content of a model.
type memoryContent struct {
	*model
	numbers            map[uint64]uint32
	active             bitset.Set
	parents, children  [][]uint32
	relationships      Relationships
	concreteValues     ConcreteValues
	ofConcept          [][]int // descriptions
	refsets            []uint32
	members            map[uint32][]uint32
	ofRefset           map[uint32][]int // rows
	components, target map[uint32][]uint32
	words              map[string][]uint32 // concepts by word prefix of up to three letters
}

func newMemoryContent(m *model) *memoryContent {
	n := len(m.concepts)
	c := &memoryContent{
		model: m, numbers: make(map[uint64]uint32), active: bitset.New(n), parents: make([][]uint32, n), children: make([][]uint32, n),
		ofConcept: make([][]int, n), members: make(map[uint32][]uint32), ofRefset: make(map[uint32][]int),
		components: make(map[uint32][]uint32), target: make(map[uint32][]uint32), words: make(map[string][]uint32),
	}
	for i, x := range m.concepts {
		c.numbers[x.id] = uint32(i)
		if x.active {
			c.active.Add(uint32(i))
		}
	}
	for _, pair := range m.isA {
		c.parents[pair[0]] = append(c.parents[pair[0]], uint32(pair[1]))
		c.children[pair[1]] = append(c.children[pair[1]], uint32(pair[0]))
	}
	flatten(c.parents)
	flatten(c.children)
	c.indexRelations(n)
	c.indexDescriptions()
	c.indexRows()
	return c
}

// flatten moves lists to one array, as an edition stores them.
func flatten(lists [][]uint32) {
	all := slices.Concat(lists...)
	for i, list := range lists {
		lists[i], all = all[:len(list):len(list)], all[len(list):]
	}
}

func (c *memoryContent) indexRelations(n int) {
	slices.SortStableFunc(c.relations, func(a, b modelRelation) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.group, b.group))
	})
	r := &c.relationships
	r.From, r.To = make([]uint32, n+1), make([]uint32, n+1)
	for i, x := range c.relations {
		r.Source, r.Type, r.Destination = append(r.Source, uint32(x.source)), append(r.Type, uint32(x.kind)), append(r.Destination, uint32(x.destination))
		r.Group, r.ByDestination = append(r.Group, x.group), append(r.ByDestination, uint32(i))
		r.From[x.source+1]++
		r.To[x.destination+1]++
	}
	for i := range n {
		r.From[i+1] += r.From[i]
		r.To[i+1] += r.To[i]
	}
	slices.SortStableFunc(r.ByDestination, func(a, b uint32) int { return cmp.Compare(r.Destination[a], r.Destination[b]) })
	slices.SortStableFunc(c.values, func(a, b modelValue) int { return cmp.Compare(a.source, b.source) })
	x := &c.concreteValues
	for _, v := range c.values {
		x.Source, x.Type, x.Group = append(x.Source, uint32(v.source)), append(x.Type, uint32(v.kind)), append(x.Group, v.group)
	}
	x.Value = func(row int) []byte { return []byte(c.values[row].value) }
}

func (c *memoryContent) indexDescriptions() {
	for i, d := range c.descriptions {
		c.ofConcept[d.concept] = append(c.ofConcept[d.concept], i)
		if !d.Active {
			continue
		}
		for word := range strings.FieldsSeq(textindex.Fold(string(d.Term))) {
			for length := 1; length <= min(3, len(word)); length++ {
				c.words[word[:length]] = append(c.words[word[:length]], uint32(d.concept))
			}
		}
	}
}

func (c *memoryContent) indexRows() {
	for i, row := range c.rows {
		refset, component := uint32(row.refset), uint32(row.component)
		if !slices.Contains(c.refsets, refset) {
			c.refsets = append(c.refsets, refset)
		}
		c.ofRefset[refset] = append(c.ofRefset[refset], i)
		if !row.active {
			continue
		}
		c.members[refset] = append(c.members[refset], component)
		if column := slices.Index(c.columns[row.refset], "targetComponentId"); column >= 0 {
			target, ok := c.Number(parseID(row.fields[column]))
			if !ok {
				target = NoConcept
			}
			c.components[refset], c.target[refset] = append(c.components[refset], component), append(c.target[refset], target)
		}
	}
}

func parseID(text string) (id uint64) {
	fmt.Sscan(text, &id)
	return id
}

func (c *memoryContent) Len() int                            { return len(c.concepts) }
func (c *memoryContent) ID(concept uint32) uint64            { return c.concepts[concept].id }
func (c *memoryContent) Active() bitset.Set                  { return c.active }
func (c *memoryContent) Parents(concept uint32) []uint32     { return c.parents[concept] }
func (c *memoryContent) Children(concept uint32) []uint32    { return c.children[concept] }
func (c *memoryContent) Relationships() *Relationships       { return &c.relationships }
func (c *memoryContent) ConcreteValues() *ConcreteValues     { return &c.concreteValues }
func (c *memoryContent) Refsets() []uint32                   { return c.refsets }
func (c *memoryContent) Members(refset uint32) []uint32      { return c.members[refset] }
func (c *memoryContent) MemberFields(refset uint32) []string { return c.columns[int(refset)] }
func (c *memoryContent) Metadata(concept uint32) Metadata    { return c.concepts[concept].Metadata }

func (c *memoryContent) Number(id uint64) (uint32, bool) {
	number, ok := c.numbers[id]
	return number, ok
}

func (c *memoryContent) AlternateIdentifier(scheme, code string) (uint32, bool) {
	number, ok := c.alternates[strings.ToUpper(scheme)+"#"+code]
	return uint32(number), ok
}

func (c *memoryContent) Associations(refset uint32) (components, targets []uint32) {
	return c.components[refset], c.target[refset]
}

func (c *memoryContent) EachMember(refset uint32, visit func(m *Member) bool) {
	for _, i := range c.ofRefset[refset] {
		row := &c.rows[i]
		m := Member{Component: uint32(row.component), Module: row.module, EffectiveTime: row.time, Active: row.active}
		for _, field := range row.fields {
			m.Fields = append(m.Fields, []byte(field))
		}
		if !visit(&m) {
			return
		}
	}
}

func (c *memoryContent) EachDescription(concept uint32, visit func(d *Description) bool) {
	for _, i := range c.ofConcept[concept] {
		if !visit(&c.descriptions[i].Description) {
			return
		}
	}
}

func (c *memoryContent) FindWords(words []string, spend func(int) error) (bitset.Set, bool, error) {
	var result bitset.Set
	for _, word := range words {
		found, list := bitset.New(len(c.concepts)), c.words[word[:min(3, len(word))]]
		for _, concept := range list {
			found.Add(concept)
		}
		if err := spend(1 + len(list)/16); err != nil {
			return nil, true, err
		}
		if result != nil {
			found.Intersect(result)
		}
		result = found
	}
	return result, true, nil
}

// SCTIDs of the model. Concept i has the SCTID firstID+i unless it is listed.
const (
	firstID     = 100000
	associated  = 900000000000522004 // historical association reference set
	sameAs      = 900000000000527005
	possibly    = 900000000000523009
	coreModule  = 900000000000207008
	otherModule = 731000124108
	gbEnglish   = 900000000000508004
	usEnglish   = 900000000000509007
)

var modelWords = []string{"heart", "attack", "acute", "disease", "liver", "hepatic", "fracture", "bone", "of", "viral", "cardiac", "Structure"}

// newModel returns a random edition: numbers 0 to 9 are metadata, 10 to 15 attributes, the others clinical concepts.
func newModel(r *rand.Rand, size int) *model {
	m := &model{columns: make(map[int][]string), alternates: map[string]int{"LOINC#54-6": 20, "LOINC#a b": 21}}
	fixed := []uint64{138875005, associated, sameAs, possibly, coreModule, otherModule, gbEnglish}
	for i := range size {
		x := modelConcept{id: firstID + uint64(i), active: i < 16 || r.IntN(8) > 0}
		if i < len(fixed) {
			x.id = fixed[i]
		}
		x.Module = []uint64{coreModule, otherModule}[r.IntN(2)]
		x.DefinitionStatus = []uint64{900000000000074008, 900000000000073002}[r.IntN(2)]
		x.EffectiveTime = []uint32{20200131, 20210731, 20260131, 0}[r.IntN(4)]
		m.concepts = append(m.concepts, x)
		m.addParents(r, i)
		m.addDescriptions(r, i)
	}
	for i := 16; i < size; i++ {
		if m.concepts[i].active {
			m.addRelations(r, i)
		}
	}
	m.addRows(r)
	return m
}

func (m *model) addParents(r *rand.Rand, i int) {
	switch {
	case i == 0 || !m.concepts[i].active || i > 16 && r.IntN(20) == 0: // the root, inactive concepts and orphans
		return
	case i == 2 || i == 3:
		m.isA = append(m.isA, [2]int{i, 1})
		return
	case i < 10 || i == 10 || i == 16:
		m.isA = append(m.isA, [2]int{i, 0})
		return
	case i < 16:
		m.isA = append(m.isA, [2]int{i, 10 + r.IntN(i-10)})
		return
	}
	for range 1 + r.IntN(3) {
		pair := [2]int{i, max(16, i-1-r.IntN(12))}
		if m.concepts[pair[1]].active && !slices.Contains(m.isA, pair) {
			m.isA = append(m.isA, pair)
		}
	}
}

func (m *model) addDescriptions(r *rand.Rand, i int) {
	for range 1 + r.IntN(3) {
		d := modelDescription{concept: i}
		d.ID = 1000000 + uint64(len(m.descriptions))
		for range 1 + r.IntN(4) {
			d.Term = append(append(d.Term, modelWords[r.IntN(len(modelWords))]...), ' ')
		}
		d.Term = d.Term[:len(d.Term)-1]
		d.Language = []string{"en", "sv"}[r.IntN(2)]
		d.Type = []uint64{900000000000013009, 900000000000003001, 900000000000550004}[r.IntN(3)]
		d.Module, d.EffectiveTime, d.Active = []uint64{coreModule, otherModule}[r.IntN(2)], []uint32{20200131, 20260131, 0}[r.IntN(3)], r.IntN(5) > 0
		for _, refset := range []uint64{gbEnglish, usEnglish} {
			if r.IntN(2) == 0 {
				d.Dialects = append(d.Dialects, Dialect{refset, []uint64{900000000000548007, 900000000000549004}[r.IntN(2)]})
			}
		}
		m.descriptions = append(m.descriptions, d)
	}
}

func (m *model) addRelations(r *rand.Rand, i int) {
	for range r.IntN(6) {
		m.relations = append(m.relations, modelRelation{i, 10 + r.IntN(6), 16 + r.IntN(len(m.concepts)-16), uint16(r.IntN(4))})
	}
	for range r.IntN(3) {
		m.values = append(m.values, modelValue{i, 10 + r.IntN(6), uint16(r.IntN(4)), modelValues[r.IntN(len(modelValues))]})
	}
}

var modelValues = []string{"#1", "#2", "#2.5", "#-3", "#10", `"PANADOL"`, `"a b"`, "true", "false"}

// Reference sets of the model.
const (
	simpleRefset = 7
	mapRefset    = 8
)

func (m *model) addRows(r *rand.Rand) {
	m.columns[mapRefset] = []string{"mapGroup", "mapTarget", "correlationId"}
	m.columns[2], m.columns[3] = []string{"targetComponentId"}, []string{"targetComponentId"}
	for i := range m.concepts {
		for _, refset := range []int{2, 3, simpleRefset, mapRefset} {
			if r.IntN(3) > 0 {
				continue
			}
			row := modelRow{refset: refset, component: i, active: r.IntN(5) > 0, module: []uint64{coreModule, otherModule}[r.IntN(2)], time: []uint32{20200131, 20260131}[r.IntN(2)]}
			switch refset {
			case 2, 3:
				row.fields = []string{fmt.Sprint(m.concepts[r.IntN(len(m.concepts))].id)}
			case mapRefset:
				row.fields = []string{fmt.Sprint(1 + r.IntN(3)), []string{"J45.9", "J45.0", "I21", ""}[r.IntN(4)], fmt.Sprint(m.concepts[r.IntN(len(m.concepts))].id)}
			}
			m.rows = append(m.rows, row)
		}
	}
}
