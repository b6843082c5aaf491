package snomed

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// expressionContent is the content of an edition with an expression and its nested expressions as additional concepts. The
// parent of each expression is an intermediate concept. The parents of the intermediate concept are the focus concepts and the
// defined concepts that subsume the expression. HL7's tests expect an expression to be a descendant, but not a child, of its focus
// concepts.
type expressionContent struct {
	edition       *eclContent
	first         uint32                 // number of the first additional concept
	parents       [][]uint32             // parents of the intermediate concepts first, first+2, ...
	children      map[uint32][]uint32    // intermediate children by concept of the edition
	numbers       map[*expression]uint32 // numbers of expressions
	relationships ecl.Relationships
	concrete      ecl.ConcreteValues
	values        [][]byte // values of the additional rows of concrete
}

// Each step of copying relationships copies rowsPerStep rows.
const rowsPerStep = 8

// newExpressionContent returns content with an expression, which is the last concept.
func newExpressionContent(c *eclContent, e *expression, spend func(steps int) error) (*expressionContent, error) {
	x := &expressionContent{edition: c, first: uint32(c.Len()), children: make(map[uint32][]uint32), numbers: make(map[*expression]uint32)}
	if err := spend(c.Len() + len(c.Relationships().Source)/rowsPerStep); err != nil {
		return nil, err
	}
	x.relationships, x.concrete = cloneRows(c.Relationships()), x.cloneValues(&c.concrete)
	definitions := newSubsumption(c.snapshot, spend)
	for _, part := range e.appendWithNested(nil) {
		x.add(definitions, part)
	}
	r := &x.relationships
	r.To, r.ByDestination = groupByOwner(x.Len(), r.Destination)
	return x, definitions.err
}

// appendWithNested appends an expression after its nested expressions.
func (e *expression) appendWithNested(list []*expression) []*expression {
	for _, g := range e.groups {
		for _, a := range g.attributes {
			if a.nested != nil && a.concept == none {
				list = a.nested.appendWithNested(list)
			}
		}
	}
	return append(list, e)
}

func cloneRows(r *ecl.Relationships) ecl.Relationships {
	return ecl.Relationships{
		From: slices.Clone(r.From), Source: slices.Clone(r.Source), Type: slices.Clone(r.Type),
		Destination: slices.Clone(r.Destination), Group: slices.Clone(r.Group),
	}
}

func (x *expressionContent) cloneValues(r *ecl.ConcreteValues) ecl.ConcreteValues {
	n := len(r.Source)
	return ecl.ConcreteValues{Source: slices.Clone(r.Source), Type: slices.Clone(r.Type), Group: slices.Clone(r.Group), Value: func(row int) []byte {
		if row < n {
			return r.Value(row)
		}
		return x.values[row-n]
	}}
}

// add adds an expression after its nested expressions.
func (x *expressionContent) add(definitions *subsumption, e *expression) {
	between := uint32(x.Len())
	x.parents = append(x.parents, slices.Concat(e.focus, definitions.subsumersOf(e).defined))
	for _, parent := range x.parents[len(x.parents)-1] {
		x.children[parent] = append(x.children[parent], between)
	}
	x.numbers[e] = between + 1
	rows := &x.relationships
	rows.From = append(rows.From, uint32(len(rows.Source)))
	number := uint16(0)
	for _, g := range definitions.normalGroups(e) {
		if g.isGroup { // single attributes come first
			number++
		}
		for _, a := range g.attributes {
			x.addAttribute(between+1, number, &a)
		}
	}
	rows.From = append(rows.From, uint32(len(rows.Source)))
}

func (x *expressionContent) addAttribute(source uint32, group uint16, a *attributeValue) {
	if a.concrete != nil {
		v := &x.concrete
		v.Source, v.Type, v.Group = append(v.Source, source), append(v.Type, a.kind), append(v.Group, group)
		x.values = append(x.values, a.concrete)
		return
	}
	destination := a.concept
	if destination == none {
		destination = x.numbers[a.nested]
	}
	r := &x.relationships
	r.Source, r.Type = append(r.Source, source), append(r.Type, a.kind)
	r.Destination, r.Group = append(r.Destination, destination), append(r.Group, group)
}

// Len and the following methods implement [ecl.Content].
func (x *expressionContent) Len() int                            { return int(x.first) + 2*len(x.parents) }
func (x *expressionContent) Relationships() *ecl.Relationships   { return &x.relationships }
func (x *expressionContent) ConcreteValues() *ecl.ConcreteValues { return &x.concrete }

// Number returns only concepts of the edition: the additional concepts have no identifier.
func (x *expressionContent) Number(id uint64) (concept uint32, ok bool) { return x.edition.Number(id) }

func (x *expressionContent) AlternateIdentifier(scheme, code string) (concept uint32, ok bool) {
	return x.edition.AlternateIdentifier(scheme, code)
}

func (x *expressionContent) ID(concept uint32) uint64 {
	if concept >= x.first {
		return 0
	}
	return x.edition.ID(concept)
}

func (x *expressionContent) Active() bitset.Set {
	active := bitset.New(x.Len())
	copy(active, x.edition.Active())
	for concept := x.first; concept < uint32(x.Len()); concept++ {
		active.Add(concept)
	}
	return active
}

func (x *expressionContent) Parents(concept uint32) []uint32 {
	switch {
	case concept < x.first:
		return x.edition.Parents(concept)
	case (concept-x.first)%2 == 0:
		return x.parents[(concept-x.first)/2]
	}
	return []uint32{concept - 1}
}

func (x *expressionContent) Children(concept uint32) []uint32 {
	switch {
	case concept < x.first:
		if added := x.children[concept]; added != nil {
			return slices.Concat(x.edition.Children(concept), added)
		}
		return x.edition.Children(concept)
	case (concept-x.first)%2 == 0:
		return []uint32{concept + 1}
	}
	return nil
}

// Refsets and the following methods return the reference sets of the edition, which have no rows for additional concepts.
func (x *expressionContent) Refsets() []uint32              { return x.edition.Refsets() }
func (x *expressionContent) Members(refset uint32) []uint32 { return x.edition.Members(refset) }
func (x *expressionContent) MemberFields(refset uint32) []string {
	return x.edition.MemberFields(refset)
}

func (x *expressionContent) EachMember(refset uint32, visit func(m *ecl.Member) bool) {
	x.edition.EachMember(refset, visit)
}

func (x *expressionContent) Associations(refset uint32) (components, targets []uint32) {
	return x.edition.Associations(refset)
}

func (x *expressionContent) EachDescription(concept uint32, visit func(d *ecl.Description) bool) {
	if concept < x.first {
		x.edition.EachDescription(concept, visit)
	}
}

func (x *expressionContent) FindWords(words []string, spend func(int) error) (bitset.Set, bool, error) {
	found, ok, err := x.edition.FindWords(words, spend)
	all := bitset.New(x.Len())
	copy(all, found)
	return all, ok, err
}

func (x *expressionContent) Metadata(concept uint32) ecl.Metadata {
	if concept < x.first {
		return x.edition.Metadata(concept)
	}
	return ecl.Metadata{}
}
