package resource

import (
	"errors"
	"iter"
	"math"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
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
			if version, _ = Field(value, "versionId"); version != nil {
				version, err = text(version)
			}
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

const (
	// usualMembers is how many members there is room for in the usual resource, and usualNames how long their names are.
	usualMembers = 24
	usualNames   = 10 * usualMembers

	// further is how many resources there is room for at once, once it is clear that they are several.
	further = 16
)

// Reader reads resources that are values in one text, such as those in the entries of a Bundle. What it keeps of them
// is in a few pieces of memory for all.
type Reader struct {
	c          *rawjson.Cursor
	text       []byte
	bases      []string
	typeBefore string
	names      []byte   // no names, with room for those of further resources
	members    []member // likewise
	room       int      // for how many resources there will be room next time
}

// NewReader returns a reader of the resources that come up at a cursor over a text. The rest is as for Parse.
func NewReader(c *rawjson.Cursor, text []byte, bases ...string) *Reader {
	return &Reader{c: c, text: text, bases: bases, room: 1}
}

// Read reads the cursor's next value, a resource. Part is where it stands in the text.
func (r *Reader) Read() (res Resource, part []byte, err error) {
	if len(r.text) > math.MaxInt32 {
		return res, nil, errTooLong
	}
	if cap(r.members) < usualMembers { // too little for the usual one
		r.members = make([]member, 0, r.room*usualMembers)
	}
	if cap(r.names) < usualNames {
		r.names = make([]byte, 0, r.room*usualNames)
	}
	r.room = further
	res = Resource{text: r.text, names: r.names, members: r.members, bases: r.bases}
	r.c.Kind() // goes to its first byte
	start := r.c.Offset()
	err = r.c.Object(func(name []byte) error {
		m := member{name: int32(len(res.names)), value: int32(r.c.Offset())}
		res.names = append(res.names, name...)
		err := r.c.Skip()
		m.nameEnd, m.end = int32(len(res.names)), int32(r.c.Offset())
		res.members = append(res.members, m)
		return err
	})
	if err == nil {
		err = res.identify(r.typeBefore)
	}
	if err != nil {
		return Resource{}, nil, err
	}
	r.typeBefore = res.Type
	r.names, r.members = res.names[len(res.names):], res.members[len(res.members):]
	return res, r.text[start:r.c.Offset():r.c.Offset()], nil
}

// Parse reads a resource from the whole of a text, which must not be changed as long as the resource is in use. Bases
// are the URLs of the server that the resource is on: an absolute reference below one of them is a reference to that
// server, and any other is to another one. A name that stands twice in an object, at any level, is an error.
func Parse(text []byte, bases ...string) (Resource, error) {
	c := rawjson.NewCursor(text)
	r, _, err := NewReader(c, text, bases...).Read()
	if err == nil {
		err = c.End()
	}
	if err != nil {
		return Resource{}, err
	}
	return r, nil
}

// Part reads a resource whose text lies in this one, such as in an entry of a Bundle. It is on the same server.
func (r Resource) Part(text []byte) (Resource, error) { return Parse(text, r.bases...) }

// FindContained returns the contained resource with an id.
func (r Resource) FindContained(id string) (Resource, bool) {
	for value := range r.Contained() {
		if c, err := Parse(value, r.bases...); err == nil && c.ID == id {
			return c, true
		}
	}
	return Resource{}, false
}
