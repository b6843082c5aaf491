package terminology

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// Lookup holds the parameters of CodeSystem/$lookup, for [Library.Lookup].
type Lookup struct {
	// Coding is the code to look up. Its System is required.
	Coding

	// Date is a FHIR date: later versions of the code system do not count.
	Date string

	// Supplements are the canonicals of the supplements to use.
	Supplements []string

	// Properties are the codes of the wanted properties; * means all.
	Properties []string

	// Language chooses the display.
	Language Language
}

// Concept is what a code system and its supplements say of a code.
type Concept struct {
	// Name is the name of the code system.
	Name string

	// Coding is the code with the version of the code system.
	Coding

	// Definition is the meaning of the concept, if the code system has it.
	Definition string

	// Abstract says that a user must not choose the code, and Inactive that it should no longer be used.
	Abstract, Inactive bool

	// Designations are the displays and other names in all languages.
	Designations []Designation

	// Properties are the wanted ones.
	Properties []ConceptProperty

	// Supplements are the canonicals of the supplements used.
	Supplements []string
}

// Designation is a name of a concept.
type Designation struct {
	// Language is empty if it is not known.
	Language string

	// Use has no Code if it is not known.
	Use Coding

	// Value is the name itself.
	Value string

	// Source is the canonical of the supplement with the designation; empty: it is the code system's own.
	Source string
}

// ConceptProperty is a property of a concept.
type ConceptProperty struct {
	// Code is the code of the property.
	Code string

	// Type is the name of the value[x], such as valueCode, and Value the value; a valueCoding is JSON.
	Type, Value string

	// Description is the display of the concept that the property names, if it names one.
	Description string

	// Source is the canonical of the supplement with the property; empty: it is the code system's own.
	Source string
}

// Lookup answers CodeSystem/$lookup. It fails as [Library.Expand] does.
func (l *Library) Lookup(_ context.Context, q Lookup) (c *Concept, err error) {
	l.set.use(func() { c, err = lookup(l.set, &q) })
	return c, err
}

func lookup(l *Set, q *Lookup) (*Concept, error) {
	if err := l.asOf(&q.Coding, q.Date); err != nil {
		return nil, err
	}
	e, err := l.concept(&q.Coding)
	if err != nil {
		return nil, err
	}
	cs, at := l.codeSystems[e.codeSystem], e.at
	supplements, err := l.requiredSupplements([]uint32{e.codeSystem}, q.Supplements)
	if err != nil {
		return nil, err
	}
	c := newConcept(cs, at, l.shownTexts(nil, e, "", supplements), &q.Language)
	c.relate(q.Properties, cs, "parent", cs.concepts.Hierarchy.Parents(at.Number))
	c.relate(q.Properties, cs, "child", cs.concepts.Hierarchy.Children(at.Number))
	c.take(q.Properties, cs, at, "")
	for _, s := range supplements {
		by := l.codeSystems[s.by]
		if other, ok := by.concepts.Locate(cs.concepts.Code(at)); ok {
			c.take(q.Properties, by, other, by.canonical())
		}
		c.Supplements = append(c.Supplements, by.canonical())
	}
	return c, nil
}

// newConcept returns a concept with its designations, the display chosen among them.
func newConcept(cs *codeSystem, at codesystem.Concept, texts []codesystem.Text, language *Language) *Concept {
	code, _, flags := cs.concepts.Concept(at)
	c := &Concept{
		Name: cmp.Or(cs.name, cs.url), Definition: string(cs.concepts.Notes.Definition(at)),
		Coding:   Coding{System: cs.url, Version: cs.version, Code: string(code), Display: string(code)},
		Abstract: flags&codesystem.FlagAbstract != 0, Inactive: flags&codesystem.FlagInactive != 0,
	}
	languages := codesystem.ParseLanguages(language.preferred(&valueSet{}))
	if i := languages.PreferredOrFirst(texts); i >= 0 {
		c.Display = string(texts[i].Value)
	}
	for _, t := range texts {
		use := Coding{System: t.Use.System, Code: t.Use.Code, Display: t.Use.Display}
		c.Designations = append(c.Designations, Designation{Language: t.Language, Use: use, Value: string(t.Value), Source: t.Source})
	}
	return c
}

// relate adds a property for each related concept, if wanted.
func (c *Concept) relate(wanted []string, cs *codeSystem, name string, related []uint32) {
	if !wants(wanted, name) {
		return
	}
	for _, other := range related {
		code, display, _ := cs.concepts.Concept(codesystem.At(other))
		c.Properties = append(c.Properties, ConceptProperty{Code: name, Type: "valueCode", Value: string(code), Description: string(display)})
	}
}

// take adds the wanted properties of a code system or supplement, without those that are known otherwise.
func (c *Concept) take(wanted []string, cs *codeSystem, at codesystem.Concept, source string) {
	for _, v := range cs.concepts.AppendValues(nil, at) {
		p := v.Property
		if !wants(wanted, p.Code) || p.Is("inactive") || p.Is("parent") || p.Is("child") {
			continue
		}
		value := v.Text
		if v.Coding != nil {
			value = v.Coding
		}
		c.Properties = append(c.Properties, ConceptProperty{Code: p.Code, Type: v.Member, Value: string(value), Source: source})
	}
}

func wants(wanted []string, code string) bool {
	return slices.Contains(wanted, "*") || slices.Contains(wanted, code)
}

// AppendJSON appends the Parameters that answer $lookup.
func (c *Concept) AppendJSON(dst []byte) []byte {
	out := newParametersWriter(dst)
	out.text("name", "valueString", c.Name)
	out.optional("version", "valueString", c.Version)
	out.text("system", "valueUri", c.System)
	out.text("code", "valueCode", c.Code)
	out.text("display", "valueString", c.Display)
	out.optional("definition", "valueString", c.Definition)
	out.boolean("abstract", c.Abstract)
	for i := range c.Designations {
		writeDesignation(out, &c.Designations[i])
	}
	inactive := strconv.AppendBool(nil, c.Inactive)
	out.parts("property", textPart("code", "valueCode", "inactive"), outPart{name: "value", kind: "valueBoolean", value: inactive})
	writeProperties(out, c.Properties, "")
	for _, supplement := range c.Supplements {
		writeProperties(out, c.Properties, supplement)
		out.text("used-supplement", "valueCanonical", supplement)
	}
	return out.end()
}

func writeDesignation(w *parametersWriter, d *Designation) {
	use := outPart{}
	if d.Use.Code != "" {
		use = outPart{name: "use", kind: "valueCoding", value: d.Use.append(nil)}
	}
	w.parts("designation", textPart("language", "valueCode", d.Language), use,
		textPart("value", "valueString", d.Value), textPart("source", "valueCanonical", d.Source))
}

// writeProperties writes the properties from one source.
func writeProperties(w *parametersWriter, list []ConceptProperty, source string) {
	for i := range list {
		if p := &list[i]; p.Source == source {
			w.parts("property", textPart("code", "valueCode", p.Code), p.value(), textPart("description", "valueString", p.Description))
		}
	}
}

// value returns the part with the value of a property.
func (p *ConceptProperty) value() outPart {
	value := []byte(p.Value)
	if !slices.Contains(unquoted, p.Type) {
		value = fhirjson.AppendString(nil, value)
	}
	return outPart{name: "value", kind: p.Type, value: value}
}

// unquoted are the types whose values are JSON already.
var unquoted = []string{"valueCoding", "valueInteger", "valueDecimal", "valueBoolean"}
