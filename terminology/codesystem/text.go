package codesystem

import (
	"bytes"
	"encoding/binary"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Text is a display or designation of a concept, as an answer may show it.
type Text struct {
	// Language is its language; empty if unknown.
	Language string

	// Use says what it is for.
	Use Use

	// Value is the text itself.
	Value []byte

	// Extension is a JSON array of its extensions, or nil.
	Extension []byte

	// Display says that it is a display rather than a designation.
	Display bool

	// Own says that it is the value set's own.
	Own bool

	// Source is the canonical of the supplement that it is from.
	Source string
}

// PreferredForLanguage is the use of a display that is shown as a designation.
var PreferredForLanguage = Use{
	System: "http://terminology.hl7.org/CodeSystem/hl7TermMaintInfra", Code: "preferredForLanguage", Display: "Preferred For Language",
}

// Synonym is the use of another name of a concept.
var Synonym = Use{System: "http://snomed.info/sct", Code: synonym, Display: "Synonym"}

// FirstDisplay returns the index of the first display, or -1.
func FirstDisplay(texts []Text) int {
	for i := range texts {
		if texts[i].Display {
			return i
		}
	}
	return -1
}

// IsDisplay reports whether a text can be the display in its language.
func (t *Text) IsDisplay() bool {
	if t.Display || t.Use == (Use{}) {
		return !bytes.Contains(t.Extension, []byte(`"withdrawn"`))
	}
	switch t.Use.Code {
	case "display", "preferredForLanguage", synonym:
		return true
	}
	return false
}

// synonym is SNOMED CT's concept for synonyms, including preferred ones.
const synonym = "900000000000013009"

// Append appends a designation as JSON, as an answer shows it.
func (t *Text) Append(dst []byte) []byte { return t.append(dst, t.Use.Code != "") }

// AppendWhole appends a designation as it stands in the definition.
func (t *Text) AppendWhole(dst []byte) []byte { return t.append(dst, t.Use != (Use{})) }

func (t *Text) append(dst []byte, withUse bool) []byte {
	start := len(dst)
	if t.Extension != nil {
		dst = append(append(dst, `,"extension":`...), t.Extension...)
	}
	dst = fhirjson.AppendMember(dst, "language", t.Language)
	if withUse {
		dst = t.Use.append(append(dst, `,"use":`...))
	}
	dst = append(fhirjson.AppendMember(dst, "value", t.Value), '}')
	dst[start] = '{' // replaces the comma
	return dst
}

func (u *Use) append(dst []byte) []byte {
	start := len(dst)
	dst = fhirjson.AppendMember(dst, "system", u.System)
	dst = fhirjson.AppendMember(dst, "code", u.Code)
	dst = append(fhirjson.AppendMember(dst, "display", u.Display), '}')
	dst[start] = '{'
	return dst
}

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
