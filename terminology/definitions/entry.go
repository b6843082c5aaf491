package definitions

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// Entry is an entry of an expansion. CodeSystem is None if the code system is not loaded. Concept is None if the code system
// lacks the code, and ParsedConcept or UnlistedConcept if the concept has no number. Row is the row in which a value set
// enumerates the code, or 0.
type Entry struct {
	CodeSystem, Concept, Row uint32 // CodeSystem is an index in SystemTable.CodeSystems
}

// HasConcept reports whether the code system is loaded and contains the code.
func (e Entry) HasConcept() bool { return e.Concept != None }

// HasConceptNumber reports whether Concept is a concept number.
func (e Entry) HasConceptNumber() bool { return e.Concept < UnlistedConcept }

// ListedRow returns the row in which the expanded value set itself enumerates the entry, or 0.
func (e Entry) ListedRow() uint32 {
	if e.Concept == UnlistedConcept {
		return 0
	}
	return e.Row
}

// LocatedEntry is an entry with its resolved concept.
type LocatedEntry struct {
	Entry
	LocatedConcept codesystem.Concept // resolved concept; undefined if HasConcept is false
}

// Locate resolves the concept of e in its code system.
func (d *Set) Locate(e Entry) LocatedEntry {
	at := codesystem.ConceptAt(e.Concept)
	switch e.Concept {
	case ParsedConcept, UnlistedConcept: // a grammar parses the code stored in the row
		at, _ = d.Systems.CodeSystems[e.CodeSystem].Concepts.Locate(d.Code(e))
	case None:
		at = codesystem.Concept{}
	}
	return LocatedEntry{Entry: e, LocatedConcept: at}
}

// Supplement pairs a code system with a supplement.
type Supplement struct {
	CodeSystem, Supplement uint32 // indexes in SystemTable.CodeSystems
}

// Code returns the code of an entry.
func (d *Set) Code(e Entry) []byte {
	if e.HasConceptNumber() {
		return d.Systems.CodeSystems[e.CodeSystem].Concepts.Code(codesystem.ConceptAt(e.Concept))
	}
	table, row := d.TableOfRow(e.Row)
	return table.Texts.At(table.Code[row])
}

// CodeAndDisplay returns the code, display and flags of an entry.
func (d *Set) CodeAndDisplay(e Entry) (code, display []byte, flags codesystem.Flags) {
	if !e.HasConceptNumber() || e.Row != 0 {
		return d.Code(e), d.Display(e), d.Flags(e)
	}
	return d.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(codesystem.ConceptAt(e.Concept))
}

// Display returns the display in the value set, else the display in the code system, else nil.
func (d *Set) Display(e Entry) []byte {
	if own := d.listedDisplay(e); len(own) > 0 || !e.HasConcept() {
		return own
	}
	_, display, _ := d.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(d.Locate(e).LocatedConcept)
	return display
}

// listedDisplay returns the display that the value set specifies for an entry, or nil.
func (d *Set) listedDisplay(e Entry) []byte {
	if e.ListedRow() == 0 {
		return nil
	}
	table, row := d.TableOfRow(e.Row)
	return table.Texts.At(table.display[row])
}

// Flags returns the combined flags of an entry's concept and of its entry in a stored expansion.
func (d *Set) Flags(e Entry) codesystem.Flags { return d.FlagsOf(d.Locate(e)) }

// FlagsOf is like [Set.Flags], but takes a located entry.
func (d *Set) FlagsOf(e LocatedEntry) codesystem.Flags {
	flags := d.storedFlags(e.Entry)
	if !e.HasConcept() {
		return flags
	}
	_, _, known := d.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(e.LocatedConcept)
	return known | flags
}

// storedFlags returns the flags from a stored expansion.
func (d *Set) storedFlags(e Entry) codesystem.Flags {
	if e.ListedRow() == 0 {
		return 0
	}
	table, _ := d.TableOfRow(e.Row)
	return table.flags[e.Row]
}

// SystemOf returns the index of an entry's code system in SystemTable.List.
func (d *Set) SystemOf(e Entry) uint32 {
	if e.HasConcept() {
		return d.Systems.CodeSystems[e.CodeSystem].systemIndex
	}
	table, row := d.TableOfRow(e.Row)
	return table.system[row]
}

// IsMarkedDeprecated reports whether the value set marks a listed concept as deprecated.
func (d *Set) IsMarkedDeprecated(e Entry) bool {
	if e.ListedRow() == 0 {
		return false
	}
	table, _ := d.TableOfRow(e.Row)
	return slices.ContainsFunc(table.ExtensionsOf(e.Row), func(x codesystem.ExtensionRow) bool {
		value := table.Texts.At(x.Value)
		return x.Kind == codesystem.ExtensionDeprecated && !bytes.HasSuffix(value, []byte(":false")) ||
			x.Kind == codesystem.ExtensionStandardsStatus && bytes.Contains(value, []byte(`"deprecated"`))
	})
}

// AppendTexts appends the displays and designations of an entry: the value set's own display, the texts of the code
// system and its supplements, and the value set's own designations.
func (d *Set) AppendTexts(dst []codesystem.Text, e LocatedEntry, language string, supplements []Supplement) []codesystem.Text {
	if !e.HasConcept() {
		return d.appendListedDesignations(d.appendListedDisplay(dst, e.Entry, language), e.Entry)
	}
	own := d.Systems.CodeSystems[e.CodeSystem]
	dst = d.appendListedDisplay(dst, e.Entry, cmp.Or(language, own.Language))
	for cs, concept := range d.DescribingSystems(e, supplements) {
		from := len(dst)
		dst = cs.Concepts.AppendTexts(dst, concept)
		for i := range dst[from:] {
			if cs != own {
				dst[from+i].Source = cs.Canonical()
			}
		}
	}
	return d.appendListedDesignations(dst, e.Entry)
}

// AppendCommonDisplay appends the display that the value set of common codes has for a concept of a grammar. For example, UCUM
// displays mg/dL as mg/dL, but the value set as milligram per deciliter. Each compared row costs one step of spend.
func (d *Set) AppendCommonDisplay(dst []codesystem.Text, e LocatedEntry, spend func(int) error) ([]codesystem.Text, error) {
	cs := d.Systems.CodeSystems[e.CodeSystem]
	vs, ok := d.ValueSets.Find(cs.CommonCodes)
	if !ok || cs.Concepts.List != nil {
		return dst, nil
	}
	code := cs.Concepts.Code(e.LocatedConcept)
	for _, set := range vs.Include {
		if set.System != cs.URL {
			continue
		}
		if err := spend(int(set.EndRow - set.FirstRow)); err != nil {
			return nil, err
		}
		if name := d.displayIn(&set, code); len(name) > 0 && !hasText(dst, name) {
			dst = append(dst, codesystem.Text{Language: cs.Concepts.Language(), Use: codesystem.Synonym, Value: name})
		}
	}
	return dst, nil
}

// displayIn returns the display that an include specifies for a code, or nil.
func (d *Set) displayIn(set *ConceptSet, code []byte) []byte {
	for row := set.FirstRow; row < set.EndRow; row++ {
		if table, at := d.TableOfRow(row); bytes.Equal(table.Texts.At(table.Code[at]), code) {
			return table.Texts.At(table.display[at])
		}
	}
	return nil
}

func hasText(texts []codesystem.Text, value []byte) bool {
	return slices.ContainsFunc(texts, func(t codesystem.Text) bool { return bytes.Equal(t.Value, value) })
}

// DescribingSystems yields the code system of an entry and each supplement with its concept, as code system and concept.
func (d *Set) DescribingSystems(e LocatedEntry, supplements []Supplement) iter.Seq2[*CodeSystem, codesystem.Concept] {
	return func(yield func(*CodeSystem, codesystem.Concept) bool) {
		if !e.HasConcept() || !yield(d.Systems.CodeSystems[e.CodeSystem], e.LocatedConcept) {
			return
		}
		code := d.Systems.CodeSystems[e.CodeSystem].Concepts.Code(e.LocatedConcept)
		for _, s := range supplements {
			if s.CodeSystem != e.CodeSystem {
				continue
			}
			by := d.Systems.CodeSystems[s.Supplement]
			if concept, ok := by.Concepts.Locate(code); ok && !yield(by, concept) {
				return
			}
		}
	}
}

// appendListedDisplay appends the value set's own display of an entry, if present.
func (d *Set) appendListedDisplay(dst []codesystem.Text, e Entry, language string) []codesystem.Text {
	if display := d.listedDisplay(e); len(display) > 0 {
		dst = append(dst, codesystem.Text{Language: language, Use: codesystem.PreferredForLanguage, Value: display, IsDisplay: true, IsFromValueSet: true})
	}
	return dst
}

// appendListedDesignations appends the value set's own designations of an entry.
func (d *Set) appendListedDesignations(dst []codesystem.Text, e Entry) []codesystem.Text {
	if e.ListedRow() == 0 {
		return dst
	}
	table, _ := d.TableOfRow(e.Row)
	for _, d := range table.designationsOf(e.Row) {
		dst = append(dst, codesystem.Text{
			Language: table.Languages[d.Language], Use: table.Uses[d.Use], IsFromValueSet: true,
			Value: table.Texts.At(d.Value), Extension: table.Texts.At(d.Extension),
		})
	}
	return dst
}

// Language contains the language preferences of a request.
type Language struct {
	// Display is the displayLanguage parameter: a list of languages with optional weights.
	Display string

	// Accept is the Accept-Language header. The value set's own displayLanguage parameter takes precedence.
	Accept string
}

// Preferred returns the display languages for a value set. It uses the first source that is present: the request parameter, the
// value set's own parameter, the header, or the value set's language.
func (l *Language) Preferred(vs *ValueSet) string {
	return cmp.Or(l.Display, vs.defaultParameter("displayLanguage"), l.Accept, vs.Language)
}
