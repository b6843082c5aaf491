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

// shownTexts appends the displays and designations of an entry: the value set's own display, then what the
// code system has and the supplements to it, then the value set's own designations.
func (d *definitions) shownTexts(dst []shownText, e entry, language string, supplements []supplement) []shownText {
	if e.concept == none {
		return d.ownDesignations(d.ownDisplayText(dst, e, language), e)
	}
	cs := d.codeSystems[e.codeSystem]
	if language == "" {
		language = cs.language
	}
	dst = cs.shownTexts(d.ownDisplayText(dst, e, language), e.concept)
	for _, s := range supplements {
		if s.of == e.codeSystem {
			by := d.codeSystems[s.by]
			if concept, ok := by.concept(cs.codeOf(e.concept)); ok {
				from := len(dst)
				dst = by.shownTexts(dst, concept)
				for i := range dst[from:] {
					dst[from+i].source = by.canonical()
				}
			}
		}
	}
	return d.ownDesignations(dst, e)
}

// ownDisplayText appends the display that a value set gives for a concept that it lists, if it does.
func (d *definitions) ownDisplayText(dst []shownText, e entry, language string) []shownText {
	if display := d.ownDisplay(e); len(display) > 0 {
		dst = append(dst, shownText{language: language, use: preferredForLanguage, value: display, display: true, own: true})
	}
	return dst
}

// ownDesignations appends the designations that a value set gives for a concept that it lists.
func (d *definitions) ownDesignations(dst []shownText, e entry) []shownText {
	if e.listed == 0 {
		return dst
	}
	table, _ := d.row(e.listed)
	for _, d := range table.designationsOf(e.listed) {
		dst = append(dst, shownText{
			language: table.languages[d.language], use: table.uses[d.use], own: true,
			value: table.texts.at(d.value), extension: table.texts.at(d.extension),
		})
	}
	return dst
}

// shownTexts appends the display and the designations of a concept.
func (cs *codeSystem) shownTexts(dst []shownText, concept uint32) []shownText {
	if display := cs.displayOf(concept); len(display) > 0 {
		dst = append(dst, shownText{language: cs.language, use: preferredForLanguage, value: display, display: true})
	}
	from, to := cs.designations.rows(concept)
	for row := from; row < to; row++ {
		dst = append(dst, shownText{
			language: cs.languages[cs.designations.language[row]], use: cs.uses[cs.designations.use[row]],
			value: cs.texts.at(cs.designations.value[row]), extension: cs.texts.at(cs.designations.extensionOf(row)),
		})
	}
	return dst
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

// wantsDesignation reports whether a designation was asked for: by use, or by language as
// urn:ietf:bcp:47|de.
func (q *Query) wantsDesignation(t *shownText) bool {
	if len(q.Designations) == 0 {
		return true
	}
	for _, token := range q.Designations {
		system, code := splitCanonical(token)
		if system == "urn:ietf:bcp:47" && code == t.language || t.use.code != "" && system == t.use.system && code == t.use.code {
			return true
		}
	}
	return false
}

// appendDesignations appends contains.designation: all texts but the one that is the display.
func (q *Query) appendDesignations(dst []byte, texts []shownText, display int) []byte {
	first := true
	for i := range texts {
		t := &texts[i]
		same := display >= 0 && bytes.Equal(t.value, texts[display].value) && t.extension == nil
		redundant := same && (t.display || t.language == "" && t.use == (designationUse{}))
		if i == display || redundant || !q.wantsDesignation(t) {
			continue
		}
		if first {
			dst = append(dst, `,"designation":[`...)
			first = false
		} else {
			dst = append(dst, ',')
		}
		dst = t.append(dst)
	}
	if !first {
		dst = append(dst, ']')
	}
	return dst
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
