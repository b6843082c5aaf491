package fhirjson

// String is a member of an object that is a string.
type String struct {
	// Name is the name of the member.
	Name string

	// Into is where its value goes.
	Into *string
}

// Strings reads the given string members of an object, and skips all others.
func (r *Reader) Strings(members ...String) error {
	return r.ObjectWith(func([]byte) error { return r.Skip() }, members...)
}

// ObjectWith reads the given string members of an object, and calls other for the value of every other member.
func (r *Reader) ObjectWith(other func(name []byte) error, members ...String) error {
	return r.Object(func(name []byte) error {
		for _, m := range members {
			if m.Name == string(name) {
				return r.ReadString(m.Into)
			}
		}
		return other(name)
	})
}
