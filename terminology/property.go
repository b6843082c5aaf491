package terminology

import "github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"

// property is one of CodeSystem.property, or one that a concept has without its being declared.
type property struct{ code, uri, description, kind string }

// valueKind is which value[x] a property has.
type valueKind uint8

const (
	valueCode valueKind = iota
	valueCoding
	valueString
	valueInteger
	valueBoolean
	valueDateTime
	valueDecimal
)

// valueMembers are the names of value[x], by kind.
var valueMembers = [...]string{
	"valueCode", "valueCoding", "valueString", "valueInteger", "valueBoolean", "valueDateTime", "valueDecimal",
}

// is reports whether a property is the one that FHIR defines under the given name: by its uri or by its
// code, since many code systems declare no uri, or another.
func (p property) is(name string) bool {
	return p.uri == conceptProperties+name || p.code == name
}

// conceptProperties is the start of the uris of the properties that FHIR itself defines (R4 §4.8.10).
const conceptProperties = "http://hl7.org/fhir/concept-properties#"

// conceptValue is the value of a property of a concept.
type conceptValue struct {
	property *property
	kind     valueKind
	text     []byte // of a Coding, its code
	coding   []byte // of a Coding, all of it, as JSON
}

// member returns the name of its value[x].
func (v *conceptValue) member() string { return valueMembers[v.kind] }

// appendJSON appends the value as JSON.
func (v *conceptValue) appendJSON(dst []byte) []byte {
	switch v.kind {
	case valueCoding:
		return append(dst, v.coding...)
	case valueInteger, valueDecimal, valueBoolean:
		return append(dst, v.text...)
	}
	return fhirjson.AppendString(dst, v.text)
}

// propertyValues holds the properties of all concepts, as rows: those of concept i are the rows
// from[i] up to from[i+1].
type propertyValues struct {
	from     []uint32
	property []uint16 // index in conceptTable.properties
	kind     []valueKind
	value    []textRef // as text; of a Coding, its code
	coding   []textRef // of a Coding, all of it as JSON, else 0; nil where there are none
}

// rows returns the range of the rows of a concept.
func (v *propertyValues) rows(concept uint32) (from, to uint32) {
	if v.from == nil {
		return 0, 0
	}
	return v.from[concept], v.from[concept+1]
}
