package loinc

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// URL is the URL of LOINC.
const URL = "http://loinc.org"

// System is a version of LOINC.
type System struct {
	*table.Table
	version string
	terms   uint32 // number of terms, which come first
	links   links

	// spellings are the values of a property by their form in lower case, by property. They are nil for texts.
	spellings []map[string]string

	// hasTexts reports, by property, whether values are texts, not only links.
	hasTexts []bool

	// named returns all concepts after the terms, sorted by name regardless of case. It is computed on first use.
	named func() []uint32
}

// linkProperty is a property, the values of which are concepts.
type linkProperty struct {
	name string

	// reverse is the number of the property for the opposite direction plus one, or 0.
	reverse uint16

	// isReverse means that the links are those of reverse.
	isReverse bool
}

// linkProperties are the properties that are declared first: columns of Loinc.csv with names of parts, and links between terms,
// answers and groups. Files of links between terms and parts declare others, such as document-kind.
var linkProperties = []linkProperty{
	{name: "COMPONENT"}, {name: "PROPERTY"}, {name: "TIME_ASPCT"}, {name: "SYSTEM"}, {name: "SCALE_TYP"}, {name: "METHOD_TYP"}, {name: "CLASS"},
	{name: "Answer", reverse: propertyAnswer + 2}, {name: "AnswerList", reverse: propertyAnswer + 1, isReverse: true},
	{name: "answer-list", reverse: propertyAnswerList + 2}, {name: "answers-for", reverse: propertyAnswerList + 1, isReverse: true},
	{name: "panel-member", reverse: propertyPanelMember + 2}, {name: "panel", reverse: propertyPanelMember + 1, isReverse: true},
	{name: "group", reverse: propertyGroup + 2}, {name: "group-member", reverse: propertyGroup + 1, isReverse: true},
}

// Links with an opposite direction, which has the next number.
const (
	propertyAnswer      = axisCount          // answer list to answer
	propertyAnswerList  = propertyAnswer + 2 // term to answer list
	propertyPanelMember = propertyAnswer + 4 // panel to term
	propertyGroup       = propertyAnswer + 6 // term to group
)

// build returns the system of the files that were read.
func (l *loader) build() (*System, error) {
	s := &System{version: l.version(), terms: l.terms}
	for term, name := range l.axes[axisClass] {
		if class, ok := l.classes[name]; ok {
			l.link(uint32(term), class, axisClass)
		}
	}
	s.links = newLinks(len(l.concepts), l.links)
	l.addUnlinked(&s.links)
	var err error
	if s.Table, err = l.table.Build(language, false); err != nil {
		return nil, err
	}
	if err := checkHierarchy(s.Table, l.edges); err != nil {
		return nil, err
	}
	s.SetWeights(weights(s.Table, l.ranks))
	s.spellings, s.hasTexts = l.spellings(), l.hasTexts
	s.named = sync.OnceValue(func() []uint32 { return sortByName(s.Table, s.terms) })
	m := new(offheap.Memory)
	s.links.moveOffHeap(m)
	offheap.ReleaseWhenCollected(s, m)
	return s, nil
}

// addUnlinked adds the names of parts to which no file links a term, such as those of a release without the file of parts.
func (l *loader) addUnlinked(links *links) {
	for axis, names := range l.axes {
		for term, name := range names {
			if name != 0 && !links.hasLink(uint32(term), uint16(axis)) {
				l.addString(uint32(term), uint16(axis), name)
			}
		}
	}
}

// checkHierarchy returns an error if concepts form a cycle.
func checkHierarchy(t *table.Table, edges []edge) error {
	parents, pending := make([]int, t.Len()), []uint32(nil) // number of parents that were not visited yet
	for concept := range uint32(t.Len()) {
		if parents[concept] = len(t.Parents(concept)); parents[concept] == 0 {
			pending = append(pending, concept)
		}
	}
	for i := 0; i < len(pending); i++ {
		for _, child := range t.Children(pending[i]) {
			if parents[child]--; parents[child] == 0 {
				pending = append(pending, child)
			}
		}
	}
	if len(pending) == t.Len() {
		return nil
	}
	e := edges[slices.IndexFunc(edges, func(e edge) bool { return parents[e.child] > 0 && parents[e.parent] > 0 })]
	return fmt.Errorf("%s line %d: the parents of %s form a cycle", e.file, e.line, t.Code(codesystem.ConceptAt(e.child)))
}

// weights returns usage weights by code from the ranks of terms. According to Zipf's law, frequencies are inversely proportional to ranks.
func weights(t *table.Table, ranks []float64) iter.Seq2[string, float64] {
	return func(yield func(code string, weight float64) bool) {
		for term, rank := range ranks {
			if rank > 0 && !yield(string(t.Code(codesystem.ConceptAt(uint32(term)))), maxWeight/rank) {
				return
			}
		}
	}
}

// maxWeight is the usage weight of the most frequent term. COMMON_TEST_RANK goes up to 20,000.
const maxWeight = 20_000

// spellings returns the values of properties by their form in lower case.
func (l *loader) spellings() []map[string]string {
	list := make([]map[string]string, len(l.texts))
	for property, texts := range l.texts {
		if !l.hasTexts[property] {
			continue
		}
		list[property] = make(map[string]string, len(texts))
		for text := range texts {
			list[property][strings.ToLower(text)] = text
		}
	}
	if classType, ok := l.properties["CLASSTYPE"]; ok {
		for i, name := range []string{"laboratory class", "clinical class", "claims attachments", "surveys"} {
			list[classType][name] = string(rune('1' + i))
		}
	}
	return list
}

// AppendConcepts appends nothing, because the concepts are too many for a resource. It replaces the method of the table.
func (s *System) AppendConcepts(dst []byte) []byte { return dst }

// AppendTexts appends the display and designations of a concept. The long common name of a term is both.
func (s *System) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	dst = s.Table.AppendTexts(dst, c)
	if _, name, _ := s.Concept(c); c.Number < s.terms && len(name) > 0 {
		dst = append(dst, codesystem.Text{Language: language, Use: codesystem.Use{System: URL, Code: nameColumns[0], Display: nameColumns[0]}, Value: name})
	}
	return dst
}

// AppendValues appends the values of all properties of a concept.
func (s *System) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	dst = s.Table.AppendValues(dst, c)
	properties := s.Properties()
	add := func(property uint16, other uint32) {
		dst = append(dst, codesystem.Value{Property: &properties[property], Member: "valueCode", Text: s.Code(codesystem.ConceptAt(other))})
	}
	l := &s.links
	for row := l.from[c.Number]; row < l.from[c.Number+1]; row++ {
		add(l.property[row], l.target[row])
	}
	for _, row := range l.byTarget[l.to[c.Number]:l.to[c.Number+1]] {
		if property := l.property[row]; int(property) < len(linkProperties) && linkProperties[property].reverse > 0 {
			add(linkProperties[property].reverse-1, l.source[row])
		}
	}
	return dst
}

// Values calls visit with the values of a property of a concept until visit returns false: for a link, the code and the name.
func (s *System) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	more := true
	see := func(text []byte) { more = more && visit(text) }
	s.Table.Values(c, property, func(text []byte) bool { see(text); return more })
	link, reverse := direction(uint16(property))
	s.links.each(c.Number, link, reverse, func(other uint32) {
		code, name, _ := s.Concept(codesystem.ConceptAt(other))
		see(code)
		see(name)
	})
}

// direction returns the property by which concepts are linked for a property, and whether the direction is the opposite one.
func direction(property uint16) (link uint16, reverse bool) {
	if int(property) < len(linkProperties) && linkProperties[property].isReverse {
		return linkProperties[property].reverse - 1, true
	}
	return property, false
}
