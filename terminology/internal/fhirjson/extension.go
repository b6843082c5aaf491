package fhirjson

import "bytes"

// Extension is an extension with a primitive value, or none.
type Extension struct {
	// URL says what the extension means.
	URL string

	// Value is its value[x] as text; empty if that is not primitive.
	Value string

	// Parts are the extensions within it.
	Parts []Extension
}

const maxExtensionDepth = 8

// Extensions reads an array of extensions.
func (r *Reader) Extensions(depth int) ([]Extension, error) {
	var list []Extension
	err := r.Array(func() error {
		var x Extension
		err := r.Object(func(name []byte) (err error) {
			switch {
			case string(name) == "url":
				return r.ReadString(&x.URL)
			case string(name) == "extension" && depth < maxExtensionDepth:
				x.Parts, err = r.Extensions(depth + 1)
				return err
			case bytes.HasPrefix(name, []byte("value")) && r.IsPrimitive():
				s, err := r.Primitive()
				x.Value = string(s)
				return err
			default:
				return r.Skip()
			}
		})
		list = append(list, x)
		return err
	})
	return list, err
}

// Part returns the value of the part with the given name.
func (x *Extension) Part(name string) string {
	for _, p := range x.Parts {
		if p.URL == name {
			return p.Value
		}
	}
	return ""
}

// ExtensionBase is the start of the urls of the extensions that FHIR defines.
const ExtensionBase = "http://hl7.org/fhir/StructureDefinition/"
