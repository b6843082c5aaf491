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

// PropertyDefinition reads one of CodeSystem.property.
func (b *Builder) PropertyDefinition(r *fhirjson.Reader) error {
	var p codesystem.Property
	err := r.Strings(fhirjson.String{Name: "code", Into: &p.Code}, fhirjson.String{Name: "uri", Into: &p.URI})
	if err != nil {
		return err
	}
	if known := slices.IndexFunc(b.properties, func(k codesystem.Property) bool { return k.Code == p.Code }); known >= 0 {
		b.properties[known] = p
		return nil
	}
	return b.addProperty(p)
}

func (b *Builder) addProperty(p codesystem.Property) error {
	if len(b.properties) == math.MaxUint16 {
		return fmt.Errorf("more than %d properties", math.MaxUint16)
	}
	b.properties = append(b.properties, p)
	return nil
}

func (b *Builder) value(r *fhirjson.Reader, concept uint32) error {
	row, coded := propertyRow{concept: concept}, false
	err := r.Object(func(name []byte) error {
		switch {
		case string(name) == "code":
			coded = true
			return b.propertyCode(r, &row.property)
		case string(name) == "valueCoding":
			row.kind = valueCoding
			return b.coding(r, &row)
		case bytes.HasPrefix(name, []byte("value")):
			row.kind = valueKind(max(0, slices.Index(valueMembers[:], string(name))))
			s, err := r.Primitive()
			row.value = b.valueText(s)
			return err
		default:
			return r.Skip()
		}
	})
	if err == nil && !coded {
		err = fmt.Errorf("%s: property without a code", r.Pointer())
	}
	if row.value != 0 {
		b.rows = append(b.rows, row)
	}
	return err
}

// valueText adds a property's value to the arena, unless it equals the previous one: siblings share a parent, and most
// concepts their status.
func (b *Builder) valueText(value []byte) codesystem.TextRef {
	if last := len(b.rows) - 1; last >= 0 && bytes.Equal(b.texts.At(b.rows[last].value), value) {
		return b.rows[last].value
	}
	return b.texts.Append(value)
}

// propertyCode finds or adds the property with the code that is next.
func (b *Builder) propertyCode(r *fhirjson.Reader, index *uint16) error {
	code, err := r.Text()
	if err != nil {
		return err
	}
	for i := range b.properties {
		if b.properties[i].Code == string(code) {
			*index = uint16(i)
			return nil
		}
	}
	*index = uint16(len(b.properties))
	return b.addProperty(codesystem.Property{Code: string(code)})
}

// coding reads a valueCoding: its code for filters, and all of it for answers.
func (b *Builder) coding(r *fhirjson.Reader, row *propertyRow) error {
	whole, err := r.CompactValue('{')
	if err != nil {
		return err
	}
	row.coding = b.texts.Append(whole)
	inner := fhirjson.ReaderOf(whole)
	return inner.Object(func(name []byte) error {
		if string(name) == "code" {
			return b.texts.Read(inner, &row.value)
		}
		return inner.Skip()
	})
}
