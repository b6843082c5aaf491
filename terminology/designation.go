package terminology

import "bytes"

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
	dst = cs.AppendTexts(d.ownDisplayText(dst, e, language), e.concept)
	for _, s := range supplements {
		if s.of == e.codeSystem {
			by := d.codeSystems[s.by]
			if concept, ok := by.Locate(cs.Code(e.concept)); ok {
				from := len(dst)
				dst = by.AppendTexts(dst, concept)
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
