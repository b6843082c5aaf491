package resource

import "strings"

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
