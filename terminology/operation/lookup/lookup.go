// Package lookup implements CodeSystem/$lookup, which returns the data of a code in a code system and its supplements.
package lookup

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	api.Register(api.Operation{Type: "CodeSystem", Name: "lookup", HasInstanceLevel: true, Handle: handle})
}

func handle(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	p, err := c.Parameters(inputs)
	if err != nil {
		return nil, nil, err
	}
	coding, err := p.Coding("")
	if err != nil {
		return nil, nil, err
	}
	for i := range p.Parameters { // system and version can also complete the coding parameter
		switch in := &p.Parameters[i]; in.Name {
		case "system":
			coding.System = cmp.Or(coding.System, in.Value)
		case "version":
			coding.Version = cmp.Or(coding.Version, in.Value)
		}
	}
	if l, err = c.WithRequestResources(l, p); err != nil {
		return nil, nil, err
	}
	if p.ID != "" {
		if err := l.Definitions().Systems.CompleteCodings(p.ID, &coding); err != nil {
			return nil, nil, err
		}
	}
	found, err := Run(l, Query{Coding: coding, Date: p.Date, Supplements: p.Supplements, Properties: p.Properties, Language: p.Language})
	if err != nil {
		return nil, nil, err
	}
	return found.AppendJSON(nil), found.Missing, nil
}

// Query contains the parameters of CodeSystem/$lookup.
type Query struct {
	// Coding identifies the code to look up. System is required.
	parameters.Coding

	// Date is a FHIR date. Versions of the code system after that date are ignored.
	Date string

	// Supplements are the canonicals of required supplements.
	Supplements []string

	// Properties are the codes of the requested properties; "*" means all. Built-in code systems also have copyright.
	Properties []string

	// Language selects the language of the display.
	Language definitions.Language
}

// Concept is the data of a code from a code system and its supplements.
type Concept struct {
	// Name is the name of the code system.
	Name string

	// Coding is the code, with its display and the version of the code system.
	parameters.Coding

	// Definition is the definition of the concept, or empty.
	Definition string

	// Abstract reports whether users must not select the code, Inactive whether it should no longer be used.
	Abstract, Inactive bool

	// Designations are the displays and designations in all languages.
	Designations []parameters.Designation

	// Properties are the requested properties.
	Properties []ConceptProperty

	// Supplements are the canonicals of the used supplements.
	Supplements []string

	// Missing is the complete code system if only a lookup-only substitute is loaded.
	Missing []outcome.MissingDefinition
}

// ConceptProperty is a property of a concept.
type ConceptProperty struct {
	// Code is the code of the property.
	Code string

	// Type is the name of value[x], such as valueCode. Value is the value as text; a valueCoding is in JSON.
	Type, Value string

	// Description is the display of the concept that the value refers to, or "".
	Description string

	// Source is the canonical of the supplement that contains the property; "" if it is from the code system.
	Source string

	// Subproperties are the values of a group, which has no value of its own.
	Subproperties []ConceptProperty
}

// Run performs CodeSystem/$lookup. Its errors are those of [terminology.Library.Expand].
func Run(l *terminology.Library, q Query) (c *Concept, err error) {
	l.Definitions().Use(func() { c, err = lookup(l.Definitions(), &q) })
	return c, err
}

func lookup(l *definitions.Set, q *Query) (*Concept, error) {
	if err := l.Systems.SetVersionAsOf(&q.Coding, q.Date); err != nil {
		return nil, err
	}
	e, err := l.Systems.Concept(&q.Coding)
	var missing []outcome.MissingDefinition
	if err != nil {
		lookupOnly, ok := l.Systems.LookupOnlyConcept(&q.Coding)
		if !ok {
			return nil, err
		}
		e, missing = lookupOnly, outcome.MissingOf("CodeSystem", q.System, q.Version)
	}
	cs, at := l.Systems.CodeSystems[e.CodeSystem], e.LocatedConcept
	supplements, err := l.Systems.RequiredSupplements([]uint32{e.CodeSystem}, q.Supplements)
	if err != nil {
		return nil, err
	}
	texts, err := l.AppendCommonDisplay(l.AppendTexts(nil, e, "", supplements), e, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	c := newConcept(cs, at, texts, &q.Language)
	c.Missing = missing
	if at.Code == nil {
		c.addRelated(q.Properties, cs, "parent", cs.Concepts.Hierarchy.Parents(at.Number))
		c.addRelated(q.Properties, cs, "child", cs.Concepts.Hierarchy.Children(at.Number))
	}
	c.addProperties(q.Properties, cs, at, "")
	if cs.Copyright != "" && isRequested(q.Properties, "copyright") {
		c.Properties = append(c.Properties, ConceptProperty{Code: "copyright", Type: "valueString", Value: cs.Copyright})
	}
	for _, s := range supplements {
		by := l.Systems.CodeSystems[s.Supplement]
		if other, ok := by.Concepts.Locate(cs.Concepts.Code(at)); ok {
			c.addProperties(q.Properties, by, other, by.Canonical())
		}
		c.Supplements = append(c.Supplements, by.Canonical())
	}
	return c, nil
}

// newConcept returns a concept with designations from texts and the preferred display.
func newConcept(cs *definitions.CodeSystem, at codesystem.Concept, texts []codesystem.Text, language *definitions.Language) *Concept {
	code, _, flags := cs.Concepts.Concept(at)
	c := &Concept{
		Name: cmp.Or(cs.Name, cs.URL), Definition: string(cs.Concepts.Annotations.Definition(at)),
		Coding:   parameters.Coding{System: cs.URL, Version: cs.Version, Code: string(code), Display: string(code)},
		Abstract: flags&codesystem.FlagAbstract != 0, Inactive: flags&codesystem.FlagInactive != 0,
	}
	languages := codesystem.ParseLanguages(language.Preferred(&definitions.ValueSet{}))
	if i := languages.PreferredOrFirstDisplay(texts); i >= 0 {
		c.Display = string(texts[i].Value)
	}
	for _, t := range texts {
		use := parameters.Coding{System: t.Use.System, Code: t.Use.Code, Display: t.Use.Display}
		c.Designations = append(c.Designations, parameters.Designation{Language: t.Language, Use: use, Value: string(t.Value), Source: t.Source})
	}
	return c
}

// addRelated adds a property with the given name for each related concept, if it is requested.
func (c *Concept) addRelated(requested []string, cs *definitions.CodeSystem, name string, related []uint32) {
	if !isRequested(requested, name) {
		return
	}
	for _, other := range related {
		code, display, _ := cs.Concepts.Concept(codesystem.ConceptAt(other))
		c.Properties = append(c.Properties, ConceptProperty{Code: name, Type: "valueCode", Value: string(code), Description: string(display)})
	}
}

// addProperties adds the requested properties of a code system or supplement, except those that other code derives. If all
// properties are requested, values in groups are only subproperties.
func (c *Concept) addProperties(requested []string, cs *definitions.CodeSystem, at codesystem.Concept, source string) {
	groups := make(map[uint16]int) // indexes in c.Properties
	for _, v := range cs.Concepts.AppendValues(nil, at) {
		p := v.Property
		inGroup := v.Group > 0 && isRequested(requested, p.GroupCode)
		if !inGroup && !isRequested(requested, p.Code) || p.IsStandard("inactive") || p.IsStandard("parent") || p.IsStandard("child") {
			continue
		}
		value := v.Text
		if v.Coding != nil {
			value = v.Coding
		}
		property := ConceptProperty{Code: p.Code, Type: v.Member, Value: string(value), Source: source}
		if inGroup {
			i, ok := groups[v.Group]
			if !ok {
				i = len(c.Properties)
				groups[v.Group], c.Properties = i, append(c.Properties, ConceptProperty{Code: p.GroupCode, Source: source})
			}
			c.Properties[i].Subproperties = append(c.Properties[i].Subproperties, property)
		}
		if !inGroup || slices.Contains(requested, p.Code) {
			c.Properties = append(c.Properties, property)
		}
	}
}

func isRequested(requested []string, code string) bool {
	return slices.Contains(requested, "*") || slices.Contains(requested, code)
}

// AppendJSON appends the Parameters response of $lookup.
func (c *Concept) AppendJSON(dst []byte) []byte {
	out := parameters.NewWriter(dst)
	out.Text("name", "valueString", c.Name)
	out.Optional("version", "valueString", c.Version)
	out.Text("system", "valueUri", c.System)
	out.Text("code", "valueCode", c.Code)
	out.Text("display", "valueString", c.Display)
	out.Optional("definition", "valueString", c.Definition)
	out.Boolean("abstract", c.Abstract)
	for i := range c.Designations {
		parameters.WriteDesignation(out, &c.Designations[i])
	}
	inactive := strconv.AppendBool(nil, c.Inactive)
	out.Parts("property", parameters.TextPart("code", "valueCode", "inactive"), parameters.OutPart{Name: "value", Kind: "valueBoolean", Value: inactive})
	writeProperties(out, c.Properties, "")
	for _, supplement := range c.Supplements {
		writeProperties(out, c.Properties, supplement)
		out.Text("used-supplement", "valueCanonical", supplement)
	}
	return out.End()
}

// writeProperties writes the properties from one source.
func writeProperties(w *parameters.Writer, list []ConceptProperty, source string) {
	for i := range list {
		if p := &list[i]; p.Source == source {
			parts := []parameters.OutPart{parameters.TextPart("code", "valueCode", p.Code), p.value(), parameters.TextPart("description", "valueString", p.Description)}
			for _, s := range p.Subproperties {
				value := parameters.AppendPart([]byte{'['}, "code", "valueCode", fhirjson.AppendString(nil, s.Code))
				value = parameters.AppendPart(append(value, ','), "value", s.Type, s.value().Value)
				parts = append(parts, parameters.OutPart{Name: "subproperty", Kind: "part", Value: append(value, ']')})
			}
			w.Parts("property", parts...)
		}
	}
}

// value returns the part "value" for a property, which groups omit.
func (p *ConceptProperty) value() parameters.OutPart {
	if p.Type == "" {
		return parameters.OutPart{}
	}
	value := []byte(p.Value)
	if !slices.Contains(jsonTypes, p.Type) {
		value = fhirjson.AppendString(nil, value)
	}
	return parameters.OutPart{Name: "value", Kind: p.Type, Value: value}
}

// jsonTypes lists the value[x] types for which [ConceptProperty.Value] is already JSON.
var jsonTypes = []string{"valueCoding", "valueInteger", "valueDecimal", "valueBoolean"}
