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
	// Coding is the code that is looked up. Its System is required.
	Coding

	// Date is a date of FHIR: versions of the code system of a later date do not count.
	Date string

	// Supplements are the canonicals of the supplements that must be used.
	Supplements []string

	// Properties are the codes of the properties that are wanted; * is all of them.
	Properties []string

	// Language says in which language the display is wanted.
	Language Language
}

// Concept is what a code system, with the supplements to it, says of a code.
type Concept struct {
	// Name is the name of the code system.
	Name string

	// Coding is the code, in the version of the code system that was looked into.
	Coding

	// Definition is what the concept means; empty where the code system does not say.
	Definition string

	// Abstract says that the code is not to be chosen by a user, and Inactive that it should not be used any more.
	Abstract, Inactive bool

	// Designations are the displays and other names, in all languages.
	Designations []Designation

	// Properties are those that were asked for.
	Properties []ConceptProperty

	// Supplements are the canonicals of the supplements that were used.
	Supplements []string
}

// Designation is a name of a concept.
type Designation struct {
	// Language is its language; empty where that is not known.
	Language string

	// Use says what it is for; without a Code where that is not known.
	Use Coding

	// Value is the name itself.
	Value string

	// Source is the canonical of the supplement that it is from; empty where it is the code system's own.
	Source string
}

// ConceptProperty is a property of a concept.
type ConceptProperty struct {
	// Code is the code of the property.
	Code string

	// Type is which value[x] it has, as valueCode, and Value that value; of valueCoding it is JSON.
	Type, Value string

	// Description is the display of the concept that the property names; empty where it names none.
	Description string

	// Source is the canonical of the supplement that it is from; empty where it is the code system's own.
	Source string
}

// Lookup answers CodeSystem/$lookup: what is known of a code. Failures are those of [Library.Expand].
func (l *Library) Lookup(_ context.Context, q Lookup) (c *Concept, err error) {
	l.use(func() { c, err = l.lookup(&q) })
	return c, err
}

// lookup is Lookup.
func (l *Library) lookup(q *Lookup) (*Concept, error) {
	if err := l.asOf(&q.Coding, q.Date); err != nil {
		return nil, err
	}
	index, concept, err := l.concept(&q.Coding)
	if err != nil {
		return nil, err
	}
	cs := l.codeSystems[index]
	supplements, err := l.requiredSupplements(&used{codeSystems: []uint32{index}}, q.Supplements)
	if err != nil {
		return nil, err
	}
	c := newConcept(cs, concept)
	c.describe(l.shownTexts(nil, entry{codeSystem: index, concept: concept}, "", supplements), &q.Language)
	c.relate(q.Properties, cs, concept)
	c.take(q.Properties, cs, concept, "")
	for _, s := range supplements {
		by := l.codeSystems[s.by]
		if concept, ok := by.Locate(cs.Code(concept)); ok {
			c.take(q.Properties, by, concept, by.canonical())
		}
		c.Supplements = append(c.Supplements, by.canonical())
	}
	return c, nil
}

// newConcept returns what a code system says of a concept in a word each.
func newConcept(cs *codeSystem, concept uint32) *Concept {
	flags := cs.Flags(concept)
	return &Concept{
		Name: cmp.Or(cs.name, cs.url), Definition: string(cs.Definition(concept)),
		Coding:   Coding{System: cs.url, Version: cs.version, Code: string(cs.Code(concept)), Display: string(cs.Code(concept))},
		Abstract: flags&codesystem.FlagAbstract != 0, Inactive: flags&codesystem.FlagInactive != 0,
	}
}

// describe takes over the names of the concept, and chooses the display among them.
func (c *Concept) describe(texts []codesystem.Text, language *Language) {
	languages := codesystem.ParseLanguages(language.preferred(&valueSet{}))
	if i := languages.PreferredOrFirst(texts); i >= 0 {
		c.Display = string(texts[i].Value)
	}
	for _, t := range texts {
		use := Coding{System: t.Use.System, Code: t.Use.Code, Display: t.Use.Display}
		c.Designations = append(c.Designations, Designation{Language: t.Language, Use: use, Value: string(t.Value), Source: t.Source})
	}
}

// relate takes over the concepts above and below, where they are wanted.
func (c *Concept) relate(wanted []string, cs *codeSystem, concept uint32) {
	for _, relation := range []struct {
		name string
		to   []uint32
	}{{"parent", cs.Parents(concept)}, {"child", cs.Children(concept)}} {
		if !wants(wanted, relation.name) {
			continue
		}
		for _, other := range relation.to {
			c.Properties = append(c.Properties, ConceptProperty{
				Code: relation.name, Type: "valueCode", Value: string(cs.Code(other)), Description: string(cs.Display(other)),
			})
		}
	}
}

// take takes over the properties that a code system gives the concept, where they are wanted and not known otherwise.
func (c *Concept) take(wanted []string, cs *codeSystem, concept uint32, source string) {
	for _, v := range cs.AppendValues(nil, concept) {
		p := v.Property
		if !wants(wanted, p.Code) || p.Is("inactive") || p.Is("parent") || p.Is("child") {
			continue
		}
		value := v.Text
		if v.Coding != nil {
			value = v.Coding
		}
		c.Properties = append(c.Properties, ConceptProperty{Code: p.Code, Type: v.Member(), Value: string(value), Source: source})
	}
}

// wants reports whether a property is among those that were asked for.
func wants(wanted []string, code string) bool {
	return slices.Contains(wanted, "*") || slices.Contains(wanted, code)
}

// AppendJSON appends the Parameters that $lookup answers with.
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
		out.designation(&c.Designations[i])
	}
	inactive := strconv.AppendBool(nil, c.Inactive)
	out.parts("property", textPart("code", "valueCode", "inactive"), outPart{name: "value", kind: "valueBoolean", value: inactive})
	out.properties(c.Properties, "")
	for _, supplement := range c.Supplements {
		out.properties(c.Properties, supplement)
		out.text("used-supplement", "valueCanonical", supplement)
	}
	return out.end()
}

// designation writes a designation, with the supplement that it is from.
func (w *parametersWriter) designation(d *Designation) {
	use := outPart{}
	if d.Use.Code != "" {
		use = outPart{name: "use", kind: "valueCoding", value: d.Use.append(nil)}
	}
	w.parts("designation", textPart("language", "valueCode", d.Language), use,
		textPart("value", "valueString", d.Value), textPart("source", "valueCanonical", d.Source))
}

// properties writes the properties that are from a supplement, or, where it is empty, from the code system.
func (w *parametersWriter) properties(list []ConceptProperty, source string) {
	for i := range list {
		if p := &list[i]; p.Source == source {
			w.parts("property", textPart("code", "valueCode", p.Code), p.value(), textPart("description", "valueString", p.Description))
		}
	}
}

// value returns the part with the value of a property.
func (p *ConceptProperty) value() outPart {
	if slices.Contains(unquoted, p.Type) {
		return outPart{name: "value", kind: p.Type, value: []byte(p.Value)}
	}
	return outPart{name: "value", kind: p.Type, value: fhirjson.AppendString(nil, p.Value)}
}

// unquoted are the kinds of values that are JSON as they are.
var unquoted = []string{"valueCoding", "valueInteger", "valueDecimal", "valueBoolean"}
