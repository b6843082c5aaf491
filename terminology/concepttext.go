package terminology

import (
	"bytes"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// shownText is a display or designation of a concept, as an answer may show it.
type shownText struct {
	language  string
	use       designationUse
	value     []byte
	extension []byte // JSON array of extensions, or nil
	display   bool   // a display, not a designation
	own       bool   // the value set's own
	source    string // canonical of the supplement that it is from
}

// preferredForLanguage is the use that a display has when it is shown as a designation.
var preferredForLanguage = designationUse{
	system: "http://terminology.hl7.org/CodeSystem/hl7TermMaintInfra", code: "preferredForLanguage", display: "Preferred For Language",
}

// preferred returns the index of the text that is to be the display, or -1.
func (l *languages) preferred(texts []shownText) int {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return firstDisplay(texts)
		}
		best, found := languageDiffers, -1
		for i := range texts {
			like := likeness(texts[i].language, r.tag)
			better := like > best || like == best && like > languageDiffers && texts[i].own && !texts[found].own
			if better && texts[i].isDisplay() {
				best, found = like, i
			}
		}
		if found >= 0 {
			return found
		}
	}
	if l.only {
		return -1
	}
	return firstDisplay(texts)
}

// firstDisplay returns the index of the first display, or -1.
func firstDisplay(texts []shownText) int {
	for i := range texts {
		if texts[i].display {
			return i
		}
	}
	return -1
}

// isDisplay reports whether a text may stand for the display in its language.
func (t *shownText) isDisplay() bool {
	if t.display || t.use == (designationUse{}) {
		return !bytes.Contains(t.extension, []byte(`"withdrawn"`))
	}
	switch t.use.code {
	case "display", "preferredForLanguage", synonym:
		return true
	}
	return false
}

// synonym is SNOMED CT's concept for a designation that is a synonym, among them the preferred ones.
const synonym = "900000000000013009"

// preferredOrFirst is preferred, but takes the default display rather than none.
func (l *languages) preferredOrFirst(texts []shownText) int {
	if i := l.preferred(texts); i >= 0 {
		return i
	}
	return firstDisplay(texts)
}

// append appends a designation as JSON.
func (t *shownText) append(dst []byte) []byte {
	start := len(dst)
	if t.extension != nil {
		dst = append(append(dst, `,"extension":`...), t.extension...)
	}
	dst = fhirjson.AppendMember(dst, "language", t.language)
	if t.use.code != "" {
		dst = t.use.append(append(dst, `,"use":`...))
	}
	dst = append(fhirjson.AppendMember(dst, "value", t.value), '}')
	dst[start] = '{' // in place of the comma
	return dst
}

// append appends a use as JSON.
func (u *designationUse) append(dst []byte) []byte {
	start := len(dst)
	dst = fhirjson.AppendMember(dst, "system", u.system)
	dst = fhirjson.AppendMember(dst, "code", u.code)
	dst = append(fhirjson.AppendMember(dst, "display", u.display), '}')
	dst[start] = '{'
	return dst
}
