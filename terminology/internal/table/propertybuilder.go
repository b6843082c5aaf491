package table

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// propertyRow is a concept's property as it is read.
type propertyRow struct {
	concept  uint32
	property uint16
	kind     valueKind
	value    codesystem.TextRef
	coding   codesystem.TextRef
}

// propertyRows are the properties of a code system, and those of its concepts in the order of the source.
type propertyRows struct {
	list []codesystem.Property
	rows []propertyRow
}

// define reads one of CodeSystem.property.
func (p *propertyRows) define(r *fhirjson.Reader) error {
	var property codesystem.Property
	err := r.Strings(fhirjson.String{Name: "code", Into: &property.Code}, fhirjson.String{Name: "uri", Into: &property.URI})
	if err != nil {
		return err
	}
	if known := slices.IndexFunc(p.list, func(k codesystem.Property) bool { return k.Code == property.Code }); known >= 0 {
		p.list[known] = property
		return nil
	}
	return p.add(property)
}

func (p *propertyRows) add(property codesystem.Property) error {
	if len(p.list) == math.MaxUint16 {
		return fmt.Errorf("more than %d properties", math.MaxUint16)
	}
	p.list = append(p.list, property)
	return nil
}

// read reads one of concept.property, whose texts it puts into an arena.
func (p *propertyRows) read(r *fhirjson.Reader, t *codesystem.Texts, concept uint32) error {
	row, coded := propertyRow{concept: concept}, false
	err := r.Object(func(name []byte) error {
		switch {
		case string(name) == "code":
			coded = true
			return p.code(r, &row.property)
		case string(name) == "valueCoding":
			row.kind = valueCoding
			return row.readCoding(r, t)
		case bytes.HasPrefix(name, []byte("value")):
			row.kind = valueKind(max(0, slices.Index(valueMembers[:], string(name))))
			s, err := r.Primitive()
			row.value = p.text(t, s)
			return err
		default:
			return r.Skip()
		}
	})
	if err == nil && !coded {
		err = fmt.Errorf("%s: property without a code", r.Pointer())
	}
	if row.value != 0 {
		p.rows = append(p.rows, row)
	}
	return err
}

// text adds a property's value to the arena, unless it equals the previous one: siblings share a parent, and most
// concepts their status.
func (p *propertyRows) text(t *codesystem.Texts, value []byte) codesystem.TextRef {
	if last := len(p.rows) - 1; last >= 0 && bytes.Equal(t.At(p.rows[last].value), value) {
		return p.rows[last].value
	}
	return t.Append(value)
}

// code finds or adds the property with the code that is next.
func (p *propertyRows) code(r *fhirjson.Reader, index *uint16) error {
	code, err := r.Text()
	if err != nil {
		return err
	}
	for i := range p.list {
		if p.list[i].Code == string(code) {
			*index = uint16(i)
			return nil
		}
	}
	*index = uint16(len(p.list))
	return p.add(codesystem.Property{Code: string(code)})
}

// readCoding reads a valueCoding: its code for filters, and all of it for answers.
func (row *propertyRow) readCoding(r *fhirjson.Reader, t *codesystem.Texts) error {
	whole, err := r.CompactValue('{')
	if err != nil {
		return err
	}
	row.coding = t.Append(whole)
	inner := fhirjson.ReaderOf(whole)
	return inner.Object(func(name []byte) error {
		if string(name) == "code" {
			return t.Read(inner, &row.value)
		}
		return inner.Skip()
	})
}

// sorted returns the properties in the order of the concepts.
func (p *propertyRows) sorted(n int) propertyValues {
	if len(p.rows) == 0 {
		return propertyValues{}
	}
	from, order := sortByOwner(n, len(p.rows), func(i int) (uint32, uint32) { return p.rows[i].concept, uint32(i) })
	values := propertyValues{from: from, property: make([]uint16, len(order)), kind: make([]valueKind, len(order)), value: make([]codesystem.TextRef, len(order))}
	for i, row := range order {
		r := p.rows[row]
		values.property[i], values.kind[i], values.value[i] = r.property, r.kind, r.value
		if r.coding != 0 {
			if values.coding == nil {
				values.coding = make([]codesystem.TextRef, len(order))
			}
			values.coding[i] = r.coding
		}
	}
	return values
}
