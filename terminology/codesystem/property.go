package codesystem

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"

// Property is a property that a code system declares or a concept has.
type Property struct {
	// Code is the code of the property, and URI what it means; empty where the code system does not say.
	Code, URI string
}

// Is reports whether a property is the one that FHIR defines under a name: by its uri or its code, since many code
// systems declare no uri, or another.
func (p Property) Is(name string) bool {
	return p.URI == PropertyBase+name || p.Code == name
}

// PropertyBase is the start of the uris of the properties that FHIR defines (R4 §4.8.10).
const PropertyBase = "http://hl7.org/fhir/concept-properties#"

// Value is a property value of a concept.
type Value struct {
	// Property is the property.
	Property *Property

	// Text is the value as text; of a Coding, its code.
	Text []byte

	// Coding is all of a Coding, as JSON; nil for another value.
	Coding []byte

	// Member is the name of value[x], such as valueCode.
	Member string
}

// AppendJSON appends the value as JSON.
func (v *Value) AppendJSON(dst []byte) []byte {
	switch v.Member {
	case "valueCoding":
		return append(dst, v.Coding...)
	case "valueInteger", "valueDecimal", "valueBoolean":
		return append(dst, v.Text...)
	}
	return fhirjson.AppendString(dst, v.Text)
}
