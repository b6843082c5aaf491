package table

import "github.com/caddy-fhir/caddy-fhir/terminology/codesystem"

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

// propertyValues holds the properties of all concepts, as rows: those of concept i are from[i] up to from[i+1].
type propertyValues struct {
	from     offsets
	property []uint16 // index in Table.properties
	kind     []valueKind
	value    []codesystem.TextRef // as text; of a Coding, its code
	coding   []codesystem.TextRef // the JSON of a Coding, else 0; nil if there are none
}
