package fhirjson

// Array writes an array member, or nothing if it is empty: FHIR's JSON has no empty arrays.
type Array struct {
	// Name is the name of the member.
	Name string

	begun bool
}

// IsEmpty reports whether no element has been appended.
func (x *Array) IsEmpty() bool { return !x.begun }

// Next appends what precedes an element.
func (x *Array) Next(dst []byte) []byte {
	if x.begun {
		return append(dst, ',')
	}
	x.begun = true
	dst = append(append(dst, ',', '"'), x.Name...)
	return append(dst, '"', ':', '[')
}

// End appends what follows the last element.
func (x *Array) End(dst []byte) []byte {
	if !x.begun {
		return dst
	}
	return append(dst, ']')
}
