package resource

import (
	"errors"
	"iter"
)

// ErrNoType says that a JSON object is no resource: it has no resourceType.
var ErrNoType = errors.New("no resourceType")

// errTooLong says that a text is of 2 GiB or more.
var errTooLong = errors.New("text too long for a resource")

// Resource is a FHIR resource in JSON. The slices it gives out are parts of the text it was parsed from.
type Resource struct {
	// Type is the resourceType; never empty.
	Type string
	// ID is the logical id; empty if the resource has none.
	ID string
	// VersionID is meta.versionId; empty if the resource has none.
	VersionID string

	text    []byte
	names   []byte // of all members, one behind the other
	members []member
	bases   []string
}

// member is a member of the resource: where its name is in names, and its value in text. It has no pointers, so that
// members cost the garbage collector nothing.
type member struct{ name, nameEnd, value, end int32 }

// identify reads which resource it is. Most are of the type that the one before was.
func (r *Resource) identify(typeBefore string) error {
	var typ, id, version []byte
	for _, m := range r.members {
		var err error
		switch value := r.text[m.value:m.end]; string(r.names[m.name:m.nameEnd]) {
		case "resourceType":
			typ, err = text(value)
		case "id":
			id, err = text(value)
		case "meta":
			version, err = versionID(value)
		}
		if err != nil {
			return err
		}
	}
	if len(typ) == 0 {
		return ErrNoType
	}
	if r.Type = typeBefore; string(typ) != typeBefore {
		r.Type = string(typ)
	}
	both := string(id) + string(version) // one allocation
	r.ID, r.VersionID = both[:len(id)], both[len(id):]
	return nil
}

// versionID returns meta.versionId, if there is one.
func versionID(meta []byte) ([]byte, error) {
	version, ok := Field(meta, "versionId")
	if !ok {
		return nil, nil
	}
	return text(version)
}

// Member returns the text of a member's value; ok is false if there is none.
func (r Resource) Member(name string) (value []byte, ok bool) {
	for _, m := range r.members {
		if string(r.names[m.name:m.nameEnd]) == name {
			return r.text[m.value:m.end:m.end], true
		}
	}
	return nil, false
}

// Contained returns the texts of the contained resources.
func (r Resource) Contained() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		list, ok := r.Member("contained")
		if !ok {
			return
		}
		for text := range Elements(list) {
			if text[0] != 'n' && !yield(text) {
				return
			}
		}
	}
}
