package terminology

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
)

// codeSystemBuilder gathers one CodeSystem from the JSON stream. It is used again for the next one, so
// that its arrays grow once; build copies what it has gathered into arrays of the exact size.
type codeSystemBuilder struct {
	codeSystem
	pairs  []pair // parent, child
	rows   []propertyRow
	nested uint32 // the concept within which the next one stands
	folder folder
}

// propertyRow is a concept's property as it is read.
type propertyRow struct {
	concept  uint32
	property uint16
	value    textRef
}

// reset makes the builder ready for the next code system.
func (b *codeSystemBuilder) reset() {
	b.codeSystem = codeSystem{
		caseSensitive: true,
		texts:         b.texts[:0],
		code:          b.code[:0],
		display:       b.display[:0],
		folded:        b.folded[:0],
		flags:         b.flags[:0],
		properties:    nil,
	}
	b.pairs, b.rows, b.nested = b.pairs[:0], b.rows[:0], none
}

// propertyDefinition reads one of CodeSystem.property.
func (b *codeSystemBuilder) propertyDefinition(r *reader) error {
	var p property
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "code":
			return r.string(&p.code)
		case "uri":
			return r.string(&p.uri)
		default:
			return r.skip()
		}
	})
	if err != nil {
		return err
	}
	if known, ok := b.propertyIndex(p.code); ok {
		b.properties[known] = p
		return nil
	}
	return b.addProperty(p)
}

// addProperty appends a property.
func (b *codeSystemBuilder) addProperty(p property) error {
	if len(b.properties) == math.MaxUint16 {
		return fmt.Errorf("more than %d properties", math.MaxUint16)
	}
	b.properties = append(b.properties, p)
	return nil
}

// concept reads one of CodeSystem.concept with all that stand within it.
func (b *codeSystemBuilder) concept(r *reader) error {
	concept, parent := uint32(b.len()), b.nested
	b.code = append(b.code, 0)
	b.display = append(b.display, 0)
	if parent != none {
		b.pairs = append(b.pairs, pair{from: parent, to: concept})
	}
	b.nested = concept
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "code":
			return b.text(r, &b.code[concept])
		case "display":
			return b.text(r, &b.display[concept])
		case "property":
			return r.array(func() error { return b.value(r, concept) })
		case "concept":
			return r.array(func() error { return b.concept(r) })
		default:
			return r.skip()
		}
	})
	b.nested = parent
	if err == nil && len(b.codeOf(concept)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.pointer())
	}
	return err
}

// text reads a string into the arena. Nothing else is read meanwhile, so ref may point into an array that
// grows with what is read.
func (b *codeSystemBuilder) text(r *reader, ref *textRef) error {
	s, err := r.text()
	if err != nil {
		return err
	}
	*ref = b.texts.append(s)
	return nil
}

// value reads one of CodeSystem.concept.property.
func (b *codeSystemBuilder) value(r *reader, concept uint32) error {
	row, coded := propertyRow{concept: concept}, false
	err := r.object(func(name []byte) error {
		switch {
		case string(name) == "code":
			coded = true
			return b.propertyCode(r, &row.property)
		case string(name) == "valueCoding":
			return b.coding(r, &row.value)
		case bytes.HasPrefix(name, []byte("value")):
			s, err := r.primitive()
			row.value = b.texts.append(s)
			return err
		default:
			return r.skip()
		}
	})
	if err == nil && !coded {
		err = fmt.Errorf("%s: property without a code", r.pointer())
	}
	if row.value != 0 {
		b.rows = append(b.rows, row)
	}
	return err
}

// propertyCode reads the code of a concept's property and finds or adds the property.
func (b *codeSystemBuilder) propertyCode(r *reader, index *uint16) error {
	code, err := r.text()
	if err != nil {
		return err
	}
	for i := range b.properties {
		if b.properties[i].code == string(code) {
			*index = uint16(i)
			return nil
		}
	}
	*index = uint16(len(b.properties))
	return b.addProperty(property{code: string(code)})
}

// coding reads a valueCoding, of which the code is kept.
func (b *codeSystemBuilder) coding(r *reader, ref *textRef) error {
	return r.object(func(name []byte) error {
		if string(name) == "code" {
			return b.text(r, ref)
		}
		return r.skip()
	})
}

// build finishes the code system.
func (b *codeSystemBuilder) build() (*codeSystem, error) {
	b.indexCodes()
	b.fold()
	if uint64(len(b.texts)) > math.MaxUint32 {
		return nil, errors.New("more than 4 GiB of text")
	}
	b.relate()
	b.flag()
	cs := b.codeSystem
	cs.texts = slices.Clone(b.texts)
	cs.code = slices.Clone(b.code)
	cs.display = slices.Clone(b.display)
	cs.folded = slices.Clone(b.folded)
	cs.flags = slices.Clone(b.flags)
	cs.values = b.sortedValues()
	return &cs, nil
}
