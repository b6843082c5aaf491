package terminology

import (
	"cmp"
	"iter"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// shownTexts appends the displays and designations of an entry: the value set's own display, those of the code system
// and its supplements, and the value set's own designations.
func (d *Set) shownTexts(dst []codesystem.Text, e locatedEntry, language string, supplements []supplement) []codesystem.Text {
	if !e.isKnown() {
		return d.ownDesignations(d.ownDisplayText(dst, e.entry, language), e.entry)
	}
	own := d.codeSystems[e.codeSystem]
	dst = d.ownDisplayText(dst, e.entry, cmp.Or(language, own.language))
	for cs, concept := range d.described(e, supplements) {
		from := len(dst)
		dst = cs.concepts.AppendTexts(dst, concept)
		for i := range dst[from:] {
			if cs != own {
				dst[from+i].Source = cs.canonical()
			}
		}
	}
	return d.ownDesignations(dst, e.entry)
}

// described yields the code system of an entry and the supplements that have its concept, with the concept in each.
func (d *Set) described(e locatedEntry, supplements []supplement) iter.Seq2[*codeSystem, codesystem.Concept] {
	return func(yield func(*codeSystem, codesystem.Concept) bool) {
		if !e.isKnown() || !yield(d.codeSystems[e.codeSystem], e.at) {
			return
		}
		code := d.codeSystems[e.codeSystem].concepts.Code(e.at)
		for _, s := range supplements {
			if s.of != e.codeSystem {
				continue
			}
			by := d.codeSystems[s.by]
			if concept, ok := by.concepts.Locate(code); ok && !yield(by, concept) {
				return
			}
		}
	}
}

// ownDisplayText appends the value set's own display of an entry, if there is one.
func (d *Set) ownDisplayText(dst []codesystem.Text, e entry, language string) []codesystem.Text {
	if display := d.ownDisplay(e); len(display) > 0 {
		dst = append(dst, codesystem.Text{Language: language, Use: codesystem.PreferredForLanguage, Value: display, Display: true, Own: true})
	}
	return dst
}

// ownDesignations appends the value set's own designations of an entry.
func (d *Set) ownDesignations(dst []codesystem.Text, e entry) []codesystem.Text {
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
