package codesystem

import (
	"bytes"

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

// Preferred returns the index of the text to use as the display, or -1.
func (l *Languages) Preferred(texts []Text) int {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return FirstDisplay(texts)
		}
		best, found := languageDiffers, -1
		for i := range texts {
			like := likeness(texts[i].Language, r.tag)
			better := like > best || like == best && like > languageDiffers && texts[i].Own && !texts[found].Own
			if better && texts[i].IsDisplay() {
				best, found = like, i
			}
		}
		if found >= 0 {
			return found
		}
	}
	if l.Only {
		return -1
	}
	return FirstDisplay(texts)
}

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

// PreferredOrFirst is Preferred, but returns the default display rather than none.
func (l *Languages) PreferredOrFirst(texts []Text) int {
	if i := l.Preferred(texts); i >= 0 {
		return i
	}
	return FirstDisplay(texts)
}

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
