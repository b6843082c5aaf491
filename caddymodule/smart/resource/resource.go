// Package resource provides read access to FHIR resources for access decisions: [Parse] parses the text of a resource once, and
// elements are looked up in the text when needed.
//
//	Resource         type, id, version, members, contained resources; Reader parses consecutive resources
//	Path             a path from a resource to some of its elements; Values evaluates it
//	Reference        the target of a literal reference
//	Field, Elements  parts of a parsed resource
//
// It does not interpret the elements; the packages searchparam and compartment do.
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

// ErrNoType means that a JSON object is not a resource, because it has no resourceType.
var ErrNoType = errors.New("resourceType is missing")

// errTextTooLong means that a text is 2 GiB or larger.
var errTextTooLong = errors.New("resource is too large")

// Resource is a FHIR resource in JSON. The slices that it returns are parts of the parsed text.
type Resource struct {
	// Type is the resourceType; it is not empty.
	Type string
	// ID is the logical id; may be empty.
	ID string
	// VersionID is meta.versionId; may be empty.
	VersionID string

	text    []byte
	names   []byte // names of all members, concatenated
	members []member
	bases   []string
}

// member contains the offsets of a member's name in names and of its value in text. It contains no pointers, which reduces the
// work of the garbage collector.
type member struct{ name, nameEnd, value, end int32 }

// setIdentity sets the type, id and version. It reuses typeBefore, because consecutive resources often have the same type.
func (r *Resource) setIdentity(typeBefore string) error {
	var typ, id, version []byte
	for _, m := range r.members {
		var err error
		switch value := r.text[m.value:m.end]; string(r.names[m.name:m.nameEnd]) {
		case "resourceType":
			typ, err = decodeText(value)
		case "id":
			id, err = decodeText(value)
		case "meta":
			if version, _ = Field(value, "versionId"); version != nil {
				version, err = decodeText(version)
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
	combined := string(id) + string(version) // a single allocation
	r.ID, r.VersionID = combined[:len(id)], combined[len(id):]
	return nil
}

// Member returns the JSON value of a member; ok is false if the member is missing.
func (r Resource) Member(name string) (value []byte, ok bool) {
	for _, m := range r.members {
		if string(r.names[m.name:m.nameEnd]) == name {
			return r.text[m.value:m.end:m.end], true
		}
	}
	return nil, false
}

// Contained returns the JSON of the contained resources.
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
	// typicalMembers and typicalNamesLength are the typical maximum number of members and the total length of their names.
	typicalMembers     = 24
	typicalNamesLength = 10 * typicalMembers

	// batchSize is the number of resources for which memory is allocated at once after the first.
	batchSize = 16
)

// Reader parses resources that are values in the same text, such as those in the entries of a Bundle. It allocates memory for
// several resources at once.
type Reader struct {
	cursor       *rawjson.Cursor
	text         []byte
	bases        []string
	previousType string
	names        []byte   // empty, with capacity for the names of the next resources
	members      []member // empty, with capacity for the members of the next resources
	nextBatch    int      // number of resources for the next allocation
}

// NewReader returns a Reader for a cursor over text. bases has the same meaning as in [Parse].
func NewReader(c *rawjson.Cursor, text []byte, bases ...string) *Reader {
	return &Reader{cursor: c, text: text, bases: bases, nextBatch: 1}
}

// Read parses the cursor's next value as a resource. part is the resource's text.
func (r *Reader) Read() (res Resource, part []byte, err error) {
	if len(r.text) > math.MaxInt32 {
		return res, nil, errTextTooLong
	}
	if cap(r.members) < typicalMembers { // insufficient for a typical resource
		r.members = make([]member, 0, r.nextBatch*typicalMembers)
	}
	if cap(r.names) < typicalNamesLength {
		r.names = make([]byte, 0, r.nextBatch*typicalNamesLength)
	}
	r.nextBatch = batchSize
	res = Resource{text: r.text, names: r.names, members: r.members, bases: r.bases}
	r.cursor.Kind() // skips to the first byte of the value
	start := r.cursor.Offset()
	err = r.cursor.Object(func(name []byte) error {
		m := member{name: int32(len(res.names)), value: int32(r.cursor.Offset())}
		res.names = append(res.names, name...)
		err := r.cursor.Skip()
		m.nameEnd, m.end = int32(len(res.names)), int32(r.cursor.Offset())
		res.members = append(res.members, m)
		return err
	})
	if err == nil {
		err = res.setIdentity(r.previousType)
	}
	if err != nil {
		return Resource{}, nil, err
	}
	r.previousType = res.Type
	r.names, r.members = res.names[len(res.names):], res.members[len(res.members):]
	return res, r.text[start:r.cursor.Offset():r.cursor.Offset()], nil
}

// Parse parses a resource from a text, which must not be modified while the resource is in use. bases are the base URLs of the
// resource's server: an absolute reference below one of them refers to that server, any other to another server. Duplicate
// names in an object, at any level, are an error.
func Parse(text []byte, bases ...string) (Resource, error) {
	c := rawjson.NewCursor(text)
	r, _, err := NewReader(c, text, bases...).Read()
	if err == nil {
		err = c.CheckEnd()
	}
	if err != nil {
		return Resource{}, err
	}
	return r, nil
}

// ParsePart parses a resource that is part of this one, e.g. in an entry of a Bundle. Its server is the same.
func (r Resource) ParsePart(text []byte) (Resource, error) { return Parse(text, r.bases...) }

// FindContained returns the contained resource with the given id; false if there is none.
func (r Resource) FindContained(id string) (Resource, bool) {
	for value := range r.Contained() {
		if c, err := Parse(value, r.bases...); err == nil && c.ID == id {
			return c, true
		}
	}
	return Resource{}, false
}

// Path leads from a resource to some of its elements.
type Path struct {
	// Elements are the names of the JSON members along the path. The name of an element with a choice of types includes the
	// type, e.g. valueQuantity.
	Elements []string
	// Type is the FHIR type of the elements at the end of the path.
	Type string
	// System is the code system of the codes at the end of the path, if Type is code and they have a single code system.
	System string
	// Target, if set, selects the references at the end that refer to a resource of this type. In FHIRPath: where(resolve() is
	// Patient).
	Target string
	// Filters select some of the elements along the path.
	Filters []Filter
}

// Filter selects some of the elements along a path. In FHIRPath: where(system='phone').
type Filter struct {
	// Depth is the number of names from the beginning of the path to the filtered elements.
	Depth int
	// Element is the name of a member, and Value is its required value.
	Element, Value string
}

// Values returns the JSON of the elements at the end of a path. Arrays are flattened.
func (r Resource) Values(p Path) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if value, ok := r.Member(p.Elements[0]); ok {
			w := &pathWalk{r, &p, yield}
			w.visitValue(value, 1)
		}
	}
}

// pathWalk evaluates a path on a resource.
type pathWalk struct {
	resource Resource
	path     *Path
	yield    func([]byte) bool
}

// visitValue visits a value that is depth names along the path. It returns false to stop the walk.
func (w *pathWalk) visitValue(value []byte, depth int) bool {
	if value[0] != '[' {
		return w.visitElement(value, depth)
	}
	s := jsonScanner{text: value} // not Elements, which has a closure that would make the walk escape to the heap
	for s.consume('[') || s.consume(',') {
		if element := s.nextValue(); len(element) > 0 && !w.visitElement(element, depth) {
			return false
		}
	}
	return true
}

// visitElement visits a value that is not an array.
func (w *pathWalk) visitElement(value []byte, depth int) bool {
	switch {
	case value[0] == 'n' || !w.path.matchesFilters(value, depth):
		return true
	case depth == len(w.path.Elements):
		return !w.resource.refersTo(value, w.path.Target) || w.yield(value)
	}
	next, ok := Field(value, w.path.Elements[depth])
	return !ok || w.visitValue(next, depth+1)
}

// matchesFilters reports whether an element matches the filters at a depth of the path.
func (p *Path) matchesFilters(value []byte, depth int) bool {
	for i := range p.Filters {
		f := &p.Filters[i]
		if f.Depth != depth {
			continue
		}
		member, _ := Field(value, f.Element)
		if decoded, err := decodeText(member); err != nil || string(decoded) != f.Value {
			return false
		}
	}
	return true
}

// jsonScanner scans text that is known to be valid JSON, because it is part of a parsed text. It only finds the ends of values.
// For other text, its results are undefined but within bounds.
type jsonScanner struct {
	text   []byte
	offset int
}

// Field returns the JSON value of an object's member; ok is false if the member is missing or object is not an object. It must
// be part of a parsed resource.
func Field(object []byte, name string) (value []byte, ok bool) {
	s := jsonScanner{text: object}
	for s.consume('{') || s.consume(',') {
		found, err := decodeText(s.nextValue())
		s.consume(':')
		if value = s.nextValue(); err == nil && string(found) == name {
			return value, true
		}
	}
	return nil, false
}

// Elements returns the JSON of an array's elements, or the value itself if it is not an array. It must be part of a parsed
// resource.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := jsonScanner{text: array}
		if s.peek() != '[' {
			yield(array)
			return
		}
		for s.consume('[') || s.consume(',') {
			if value := s.nextValue(); len(value) > 0 && !yield(value) {
				return
			}
		}
	}
}

// Text returns the decoded value of a JSON string, or "" for any other value.
func Text(value []byte) string {
	decoded, _ := decodeText(value)
	return string(decoded)
}

// decodeText returns the decoded value of a string. Most strings contain no escapes and are returned without a copy.
func decodeText(value []byte) ([]byte, error) {
	if last := len(value) - 1; last > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return value[1:last:last], nil
	}
	return rawjson.NewCursor(value).Bytes()
}

// peek skips white space and returns the next character.
func (s *jsonScanner) peek() byte {
	for ; s.offset < len(s.text); s.offset++ {
		switch c := s.text[s.offset]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// consume skips the next character if it is c.
func (s *jsonScanner) consume(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.offset++
	return true
}

// nextValue skips and returns the next value. It is empty at the end of an array or object.
func (s *jsonScanner) nextValue() []byte {
	first := s.peek()
	start := s.offset
	switch first {
	case '"':
		s.skipString()
	case '{', '[':
		s.skipNested()
	default:
		for s.offset < len(s.text) && bytes.IndexByte([]byte(",:]} \t\r\n"), s.text[s.offset]) < 0 {
			s.offset++
		}
	}
	return s.text[start:s.offset:s.offset]
}

// skipString skips a string.
func (s *jsonScanner) skipString() {
	for s.offset++; s.offset < len(s.text); s.offset++ {
		switch s.text[s.offset] {
		case '\\':
			s.offset++
		case '"':
			s.offset++
			return
		}
	}
	s.offset = len(s.text)
}

// skipNested skips an object or an array.
func (s *jsonScanner) skipNested() {
	depth := 0
	for s.offset < len(s.text) {
		switch s.text[s.offset] {
		case '"':
			s.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.offset++
		if depth == 0 {
			return
		}
	}
}

// Reference is a parsed literal reference. The version in a reference is ignored.
type Reference struct {
	// Type and ID identify the resource. They are empty in a reference to a contained resource.
	Type, ID string
	// Base is the base URL of the resource's server. It is empty if that is the server of the referring resource.
	Base string
	// Contained is the id of a contained resource.
	Contained string
}

// ReferenceTarget returns the target of a Reference element and the literal reference as written. ok is false if there is no
// literal reference or if it does not identify a resource by type and id.
func (r Resource) ReferenceTarget(element []byte) (to Reference, literal string, ok bool) {
	value, ok := Field(element, "reference")
	if !ok {
		return Reference{}, "", false
	}
	decoded, err := decodeText(value)
	if err != nil {
		return Reference{}, "", false
	}
	literal = string(decoded)
	to, ok = r.ParseReference(literal)
	return to, literal, ok
}

// ParseReference parses a literal reference: Patient/1, Patient/1/_history/2, the URL of either, or #contained. ok is false for
// anything else, such as a conditional reference, a URN, or a URL that is not the address of a resource.
func (r Resource) ParseReference(s string) (Reference, bool) {
	if id, ok := strings.CutPrefix(s, "#"); ok {
		return Reference{Contained: id}, isID(id)
	}
	base, rest := r.cutBase(s)
	reference, version, hasVersion := strings.Cut(rest, "/_history/")
	typ, id, _ := strings.Cut(reference, "/")
	if !isType(typ) || !isID(id) || hasVersion && !isID(version) {
		return Reference{}, false
	}
	return Reference{Type: typ, ID: id, Base: base}, true
}

// cutBase splits a URL into the server's base URL and the rest. The base is empty for this server and for relative URLs.
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

// splitURL splits a URL before its last two segments, ignoring those of a history.
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

// refersTo reports whether an element is a reference to a resource of type target. It returns true if target is empty.
func (r Resource) refersTo(element []byte, target string) bool {
	if target == "" {
		return true
	}
	to, _, ok := r.ReferenceTarget(element)
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

// isType reports whether s has the syntax of a resource type.
func isType(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) {
			return false
		}
	}
	return s != "" && 'A' <= s[0] && s[0] <= 'Z'
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }
