package codesystem

import (
	"encoding/binary"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// TextRef is the offset of a string in a [Texts], or 0 for none.
type TextRef uint32

// Texts is an arena of strings, each its length as a varint and then its bytes. Offsets refer to them, so that the
// collector has no pointers to follow.
type Texts []byte

// Append copies s into the arena.
func (t *Texts) Append(s []byte) TextRef {
	if len(*t) == 0 {
		*t = append(*t, 0) // offset 0 stays free to mean "none"
	}
	ref := TextRef(len(*t))
	*t = binary.AppendUvarint(*t, uint64(len(s)))
	*t = append(*t, s...)
	return ref
}

// Read appends the next value of r, which must be a string. Nothing else is read meanwhile, so ref may point into an
// array that grows with what is read.
func (t *Texts) Read(r *fhirjson.Reader, ref *TextRef) error {
	s, err := r.Text()
	if err == nil {
		*ref = t.Append(s)
	}
	return err
}

// At returns the string at ref, or nil. The bytes are the arena's own and must not be changed.
func (t Texts) At(ref TextRef) []byte {
	if ref == 0 {
		return nil
	}
	if length := int(t[ref]); length < 0x80 { // nearly always
		start := int(ref) + 1
		return t[start : start+length : start+length]
	}
	return t.long(ref)
}

// long is At for a string whose length takes more than a byte.
func (t Texts) long(ref TextRef) []byte {
	length, width := binary.Uvarint(t[ref:])
	start := int(ref) + width
	return t[start : start+int(length) : start+int(length)]
}
