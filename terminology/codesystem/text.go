package codesystem

import (
	"bytes"
	"encoding/binary"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Text is a display or designation of a concept.
type Text struct {
	// Language is the language of the text; empty if unknown.
	Language string

	// Use is Designation.use; empty for other texts.
	Use Use

	// Value is the text in UTF-8.
	Value []byte

	// Extension is a JSON array of the designation's extensions, or nil.
	Extension []byte

	// IsDisplay reports whether the text is a display.
	IsDisplay bool

	// IsFromValueSet reports whether the value set, rather than the code system, contains the text.
	IsFromValueSet bool

	// IsFormer reports whether the text is no longer in use; see [FormerTexts].
	IsFormer bool

	// Source is the canonical of the supplement that contains the text, or empty.
	Source string
}

// PreferredForLanguage is the use of displays that are returned as designations.
var PreferredForLanguage = Use{
	System: "http://terminology.hl7.org/CodeSystem/hl7TermMaintInfra", Code: "preferredForLanguage", Display: "Preferred For Language",
}

// Synonym is the use of alternative names.
var Synonym = Use{System: "http://snomed.info/sct", Code: synonymConcept, Display: "Synonym"}

// FirstDisplay returns the index of the first display, or -1 if there is none.
func FirstDisplay(texts []Text) int {
	for i := range texts {
		if texts[i].IsDisplay {
			return i
		}
	}
	return -1
}

// CanBeDisplay reports whether the text is suitable as the display in its language.
func (t *Text) CanBeDisplay() bool {
	if t.IsDisplay || t.Use == (Use{}) {
		return !bytes.Contains(t.Extension, []byte(`"withdrawn"`))
	}
	switch t.Use.Code {
	case "display", "preferredForLanguage", synonymConcept:
		return true
	case "LONG_COMMON_NAME", "LinguisticVariantDisplayName", "SHORTNAME", "FullySpecifiedName": // names of LOINC terms, which are displays in other languages
		return true
	}
	return false
}

// synonymConcept is SNOMED CT's concept for synonyms, including preferred terms.
const synonymConcept = "900000000000013009"

// Append appends the text as a designation in JSON for an expansion.
func (t *Text) Append(dst []byte) []byte { return t.append(dst, t.Use.Code != "") }

// AppendForDefinition appends the text as a designation in JSON for a definition.
func (t *Text) AppendForDefinition(dst []byte) []byte { return t.append(dst, t.Use != (Use{})) }

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
	dst[start] = '{' // replaces the leading comma
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

// TextRef is the offset of a string in [Texts]; 0 means no string.
type TextRef uint32

// Texts is an arena of strings, each stored as its length (varint) followed by its bytes. Using offsets instead of pointers
// reduces the work of the garbage collector.
type Texts []byte

// Append copies s into the arena and returns its offset.
func (t *Texts) Append(s []byte) TextRef {
	if len(*t) == 0 {
		*t = append(*t, 0) // offset 0 means no string
	}
	ref := TextRef(len(*t))
	*t = binary.AppendUvarint(*t, uint64(len(s)))
	*t = append(*t, s...)
	return ref
}

// Read appends the next value of r, which must be a string, and stores its offset in *ref. It makes no other changes, so ref
// may point into an array that grows while reading.
func (t *Texts) Read(r *fhirjson.Reader, ref *TextRef) error {
	s, err := r.Text()
	if err == nil {
		*ref = t.Append(s)
	}
	return err
}

// At returns the string at ref, or nil if ref is 0. The bytes belong to the arena and must not be modified.
func (t Texts) At(ref TextRef) []byte {
	if ref == 0 {
		return nil
	}
	if length := int(t[ref]); length < 0x80 { // by far the most frequent case
		start := int(ref) + 1
		return t[start : start+length : start+length]
	}
	return t.longAt(ref)
}

// longAt is like At, but for a string of at least 128 bytes.
func (t Texts) longAt(ref TextRef) []byte {
	length, width := binary.Uvarint(t[ref:])
	start := int(ref) + width
	return t[start : start+int(length) : start+int(length)]
}
