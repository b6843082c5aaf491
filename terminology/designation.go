package terminology

import (
	"bytes"
	"iter"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// shownTexts appends the displays and designations of an entry: the value set's own display, those of the code system
// and its supplements, then the value set's own designations.
func (d *definitions) shownTexts(dst []codesystem.Text, e entry, language string, supplements []supplement) []codesystem.Text {
	if e.concept == none {
		return d.ownDesignations(d.ownDisplayText(dst, e, language), e)
	}
	cs := d.codeSystems[e.codeSystem]
	if language == "" {
		language = cs.language
	}
	dst = cs.AppendTexts(d.ownDisplayText(dst, e, language), e.concept)
	for by, concept := range d.supplemented(e, supplements) {
		from := len(dst)
		dst = by.AppendTexts(dst, concept)
		for i := range dst[from:] {
			dst[from+i].Source = by.canonical()
		}
	}
	return d.ownDesignations(dst, e)
}

// supplemented returns the supplements that have the concept of an entry, with its number in each.
func (d *definitions) supplemented(e entry, supplements []supplement) iter.Seq2[*codeSystem, uint32] {
	return func(yield func(*codeSystem, uint32) bool) {
		for _, s := range supplements {
			if s.of != e.codeSystem {
				continue
			}
			by := d.codeSystems[s.by]
			if concept, ok := by.Locate(d.code(e)); ok && !yield(by, concept) {
				return
			}
		}
	}
}

// ownDisplayText appends the display that a value set gives for a concept that it lists, if it does.
func (d *definitions) ownDisplayText(dst []codesystem.Text, e entry, language string) []codesystem.Text {
	if display := d.ownDisplay(e); len(display) > 0 {
		dst = append(dst, codesystem.Text{Language: language, Use: codesystem.PreferredForLanguage, Value: display, Display: true, Own: true})
	}
	return dst
}

// ownDesignations appends the designations that a value set gives for a concept that it lists.
func (d *definitions) ownDesignations(dst []codesystem.Text, e entry) []codesystem.Text {
	if e.listed == 0 {
		return dst
	}
	table, _ := d.row(e.listed)
	for _, d := range table.designationsOf(e.listed) {
		dst = append(dst, codesystem.Text{
			Language: table.Languages[d.Language], Use: table.Uses[d.Use], Own: true,
			Value: table.texts.At(d.Value), Extension: table.texts.At(d.Extension),
		})
	}
	return dst
}

// wantsDesignation reports whether a designation was asked for: by use, or by language as
// urn:ietf:bcp:47|de.
func (q *Query) wantsDesignation(t *codesystem.Text) bool {
	if len(q.Designations) == 0 {
		return true
	}
	for _, token := range q.Designations {
		system, code := splitCanonical(token)
		if system == "urn:ietf:bcp:47" && code == t.Language || t.Use.Code != "" && system == t.Use.System && code == t.Use.Code {
			return true
		}
	}
	return false
}

// appendDesignations appends contains.designation: all texts but the one that is the display.
func (q *Query) appendDesignations(dst []byte, texts []codesystem.Text, display int) []byte {
	first := true
	for i := range texts {
		t := &texts[i]
		same := display >= 0 && bytes.Equal(t.Value, texts[display].Value) && t.Extension == nil
		redundant := same && (t.Display || t.Language == "" && t.Use == (codesystem.Use{}))
		if i == display || redundant || !q.wantsDesignation(t) {
			continue
		}
		if first {
			dst = append(dst, `,"designation":[`...)
			first = false
		} else {
			dst = append(dst, ',')
		}
		dst = t.Append(dst)
	}
	if !first {
		dst = append(dst, ']')
	}
	return dst
}
