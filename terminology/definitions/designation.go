package definitions

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// ShownTexts appends the displays and designations of an entry: the value set's own display, those of the code system
// and its supplements, and the value set's own designations.
func (d *Set) ShownTexts(dst []codesystem.Text, e LocatedEntry, language string, supplements []Supplement) []codesystem.Text {
	if !e.IsKnown() {
		return d.ownDesignations(d.ownDisplayText(dst, e.Entry, language), e.Entry)
	}
	own := d.Systems.CodeSystems[e.CodeSystem]
	dst = d.ownDisplayText(dst, e.Entry, cmp.Or(language, own.Language))
	for cs, concept := range d.Described(e, supplements) {
		from := len(dst)
		dst = cs.Concepts.AppendTexts(dst, concept)
		for i := range dst[from:] {
			if cs != own {
				dst[from+i].Source = cs.Canonical()
			}
		}
	}
	return d.ownDesignations(dst, e.Entry)
}

// AppendCommonName appends the display that the value set of codes in common use has for a concept of a grammar: UCUM's display
// of mg/dL is mg/dL, and the value set's is milligram per deciliter. spend pays for the rows that are compared.
func (d *Set) AppendCommonName(dst []codesystem.Text, e LocatedEntry, spend func(int) error) ([]codesystem.Text, error) {
	cs := d.Systems.CodeSystems[e.CodeSystem]
	vs, ok := d.ValueSets.Find(cs.Common)
	if !ok || cs.Concepts.List != nil {
		return dst, nil
	}
	code := cs.Concepts.Code(e.At)
	for _, set := range vs.Include {
		if set.System != cs.URL {
			continue
		}
		if err := spend(int(set.Last - set.First)); err != nil {
			return nil, err
		}
		if name := d.displayIn(&set, code); len(name) > 0 && !hasText(dst, name) {
			dst = append(dst, codesystem.Text{Language: cs.Concepts.Language(), Use: codesystem.Synonym, Value: name})
		}
	}
	return dst, nil
}

// displayIn returns the display that an include lists for a code, or nil.
func (d *Set) displayIn(set *ConceptSet, code []byte) []byte {
	for row := set.First; row < set.Last; row++ {
		if table, at := d.Row(row); bytes.Equal(table.Texts.At(table.Code[at]), code) {
			return table.Texts.At(table.display[at])
		}
	}
	return nil
}

func hasText(texts []codesystem.Text, value []byte) bool {
	return slices.ContainsFunc(texts, func(t codesystem.Text) bool { return bytes.Equal(t.Value, value) })
}

// Described yields the code system of an entry and the supplements that have its concept, with the concept in each.
func (d *Set) Described(e LocatedEntry, supplements []Supplement) iter.Seq2[*CodeSystem, codesystem.Concept] {
	return func(yield func(*CodeSystem, codesystem.Concept) bool) {
		if !e.IsKnown() || !yield(d.Systems.CodeSystems[e.CodeSystem], e.At) {
			return
		}
		code := d.Systems.CodeSystems[e.CodeSystem].Concepts.Code(e.At)
		for _, s := range supplements {
			if s.Of != e.CodeSystem {
				continue
			}
			by := d.Systems.CodeSystems[s.By]
			if concept, ok := by.Concepts.Locate(code); ok && !yield(by, concept) {
				return
			}
		}
	}
}

// ownDisplayText appends the value set's own display of an entry, if there is one.
func (d *Set) ownDisplayText(dst []codesystem.Text, e Entry, language string) []codesystem.Text {
	if display := d.ownDisplay(e); len(display) > 0 {
		dst = append(dst, codesystem.Text{Language: language, Use: codesystem.PreferredForLanguage, Value: display, Display: true, Own: true})
	}
	return dst
}

// ownDesignations appends the value set's own designations of an entry.
func (d *Set) ownDesignations(dst []codesystem.Text, e Entry) []codesystem.Text {
	if e.Own() == 0 {
		return dst
	}
	table, _ := d.Row(e.Listed)
	for _, d := range table.designationsOf(e.Listed) {
		dst = append(dst, codesystem.Text{
			Language: table.Languages[d.Language], Use: table.Uses[d.Use], Own: true,
			Value: table.Texts.At(d.Value), Extension: table.Texts.At(d.Extension),
		})
	}
	return dst
}
