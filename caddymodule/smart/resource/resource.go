// Package resource is the view of a FHIR resource by which access to it is decided: [Parse] reads its text once, and
// elements are looked up in the text when they are needed.
//
//	Resource         type, id, version, members, contained resources; Reader reads one after the other
//	Path             the way from a resource to some of its elements; Values follows it
//	Reference        what a literal reference names
//	Field, Elements  what lies in a part of a resource
//
// It does not know what the elements mean; the packages searchparam and compartment do.
//
// References: FHIR R4, JSON (https://hl7.org/fhir/R4/json.html) and literal references
// (https://hl7.org/fhir/R4/references.html#literal).
package resource

import (
	"bytes"
	"errors"
	"iter"
	"math"
	"strings"

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

// Path is the way from a resource to some of its elements.
type Path struct {
	// Elements are the names of the JSON members on the way: an element of a choice of types has the type in its name,
	// such as valueQuantity.
	Elements []string
	// Type is the FHIR type of what the path leads to.
	Type string
	// System is the code system that the codes at the end are of, if they are of type code and all of one.
	System string
	// Target, if set, leaves of the references at the end those to a resource of this type. (In FHIRPath:
	// where(resolve() is Patient).)
	Target string
	// Filters leave some of the elements on the way.
	Filters []Filter
}

// Filter leaves some of the elements on a path. (In FHIRPath: where(system='phone').)
type Filter struct {
	// Depth is how many names along the path they are.
	Depth int
	// Element is the name of a member, and Value what it must say.
	Element, Value string
}

// Values returns the texts of the elements at the end of a path, those in arrays one by one.
func (r Resource) Values(p Path) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if value, ok := r.Member(p.Elements[0]); ok {
			w := &walk{r, &p, yield}
			w.enter(value, 1)
		}
	}
}

// walk goes a path through a resource.
type walk struct {
	resource Resource
	path     *Path
	yield    func([]byte) bool
}

// enter goes on in a value that is depth names along the path. It reports whether the walk may go on elsewhere.
func (w *walk) enter(value []byte, depth int) bool {
	if value[0] != '[' {
		return w.element(value, depth)
	}
	s := scan{text: value} // not Elements, whose function would put the walk on the heap
	for s.take('[') || s.take(',') {
		if element := s.value(); len(element) > 0 && !w.element(element, depth) {
			return false
		}
	}
	return true
}

// element goes on in a value that is no array.
func (w *walk) element(value []byte, depth int) bool {
	switch {
	case value[0] == 'n' || !w.path.leaves(value, depth):
		return true
	case depth == len(w.path.Elements):
		return !w.resource.refersTo(value, w.path.Target) || w.yield(value)
	}
	next, ok := Field(value, w.path.Elements[depth])
	return !ok || w.enter(next, depth+1)
}

// leaves reports whether the filters leave an element that is depth names along the path.
func (p *Path) leaves(value []byte, depth int) bool {
	for i := range p.Filters {
		f := &p.Filters[i]
		if f.Depth != depth {
			continue
		}
		member, _ := Field(value, f.Element)
		if said, err := text(member); err != nil || string(said) != f.Value {
			return false
		}
	}
	return true
}

// scan reads what is known to be valid JSON, since it is part of a text that was parsed, and so needs only find out
// where values end. In other text it finds nothing sensible, but goes no further than the end.
type scan struct {
	text []byte
	at   int
}

// Field returns the text of a member's value in an object; ok is false if there is none, or if it is no object. It is
// for parts of a parsed resource.
func Field(object []byte, name string) (value []byte, ok bool) {
	s := scan{text: object}
	for s.take('{') || s.take(',') {
		found, err := text(s.value())
		s.take(':')
		if value = s.value(); err == nil && string(found) == name {
			return value, true
		}
	}
	return nil, false
}

// Elements returns the texts of an array's elements; of any other value, the value itself. It is for parts of a parsed
// resource.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scan{text: array}
		if s.peek() != '[' {
			yield(array)
			return
		}
		for s.take('[') || s.take(',') {
			if value := s.value(); len(value) > 0 && !yield(value) {
				return
			}
		}
	}
}

// Text returns what a string says; nothing if the value is no string.
func Text(value []byte) string {
	said, _ := text(value)
	return string(said)
}

// text returns what a string says. Most have no escapes, and then it is what stands between the quotation marks.
func text(value []byte) ([]byte, error) {
	if last := len(value) - 1; last > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return value[1:last:last], nil
	}
	return rawjson.NewCursor(value).Bytes()
}

// peek goes to the next character that is no white space, and returns it.
func (s *scan) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take goes over a character if it is next.
func (s *scan) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// value goes over the next value, and returns it. In an empty array or object there is none.
func (s *scan) value() []byte {
	first := s.peek()
	start := s.at
	switch first {
	case '"':
		s.quoted()
	case '{', '[':
		s.nested()
	default:
		for s.at < len(s.text) && bytes.IndexByte([]byte(",:]} \t\r\n"), s.text[s.at]) < 0 {
			s.at++
		}
	}
	return s.text[start:s.at:s.at]
}

// quoted goes over a string.
func (s *scan) quoted() {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return
		}
	}
	s.at = len(s.text)
}

// nested goes over an object or an array.
func (s *scan) nested() {
	depth := 0
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case '"':
			s.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
		if depth == 0 {
			return
		}
	}
}

// Reference is a literal reference, read. One to a version of a resource is one to the resource.
type Reference struct {
	// Type and ID name the resource; empty in a reference to a contained one.
	Type, ID string
	// Base is the URL of the server that the resource is on; empty if it is the one that refers to it.
	Base string
	// Contained is the id of a contained resource.
	Contained string
}

// Refers returns what a Reference element refers to; ok is false if it has no literal reference, or one that names no
// resource by type and id. Literal is the reference as it is written.
func (r Resource) Refers(element []byte) (to Reference, literal string, ok bool) {
	value, ok := Field(element, "reference")
	if !ok {
		return Reference{}, "", false
	}
	said, err := text(value)
	if err != nil {
		return Reference{}, "", false
	}
	literal = string(said)
	to, ok = r.ParseReference(literal)
	return to, literal, ok
}

// ParseReference reads a literal reference: Patient/1, Patient/1/_history/2, the URL of either, or #contained. Anything
// else is not ok: a conditional reference, a URN, a URL that is no FHIR server's.
func (r Resource) ParseReference(s string) (Reference, bool) {
	if id, ok := strings.CutPrefix(s, "#"); ok {
		return Reference{Contained: id}, isID(id)
	}
	base, rest := r.cutBase(s)
	named, version, versioned := strings.Cut(rest, "/_history/")
	typ, id, _ := strings.Cut(named, "/")
	if !isType(typ) || !isID(id) || versioned && !isID(version) {
		return Reference{}, false
	}
	return Reference{Type: typ, ID: id, Base: base}, true
}

// cutBase splits a URL into the URL of its server, which is empty if that is the resource's own, and what follows.
func (r Resource) cutBase(s string) (base, rest string) {
	for _, own := range r.bases {
		own = strings.TrimSuffix(own, "/")
		if rest, ok := strings.CutPrefix(s, own+"/"); ok {
			return "", rest
		}
	}
	if !strings.Contains(s, "://") {
		return "", s
	}
	return splitURL(s)
}

// splitURL splits a URL before its last two segments, those of a history left aside.
func splitURL(s string) (base, rest string) {
	path, _, _ := strings.Cut(s, "/_history/")
	at := strings.LastIndexByte(path, '/')
	if at > 0 {
		at = strings.LastIndexByte(path[:at], '/')
	}
	if at < 0 {
		return "", s
	}
	return s[:at], s[at+1:]
}

// refersTo reports whether an element is a reference to a resource of a type; any element is if the type is empty.
func (r Resource) refersTo(element []byte, target string) bool {
	if target == "" {
		return true
	}
	to, _, ok := r.Refers(element)
	if ok && to.Contained != "" {
		contained, _ := r.FindContained(to.Contained)
		return contained.Type == target
	}
	return ok && to.Type == target
}

// isID reports whether s is a logical id.
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isLetter(c) && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// isType reports whether s is written as a resource type.
func isType(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) {
			return false
		}
	}
	return s != "" && 'A' <= s[0] && s[0] <= 'Z'
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }
