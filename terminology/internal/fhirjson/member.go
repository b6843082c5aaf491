package fhirjson

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is a member of a resource as it was read.
type Member struct {
	// Name is the name of the member.
	Name string

	// Value is its value.
	Value jsontext.Value
}

// Keep copies the value of the named member, which is next, into list, and returns a reader of it.
func (r *Reader) Keep(name string, list *[]Member) (*Reader, error) {
	value, err := r.CompactValue(0)
	if err != nil {
		return nil, err
	}
	*list = append(*list, Member{Name: name, Value: value})
	inner := r.Inner(value)
	inner.within = strings.TrimSuffix(r.Pointer(), "/")
	return inner, nil
}

// Append appends a member as JSON.
func (m Member) Append(dst []byte) []byte {
	return append(append(AppendString(dst, m.Name), ':'), m.Value...)
}

// ValueText returns the value of a member in JSON, without its name.
func ValueText(member []byte) string {
	_, value, _ := strings.Cut(string(member), ":")
	return value
}
