package ucum

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func init() { codesystem.Register(source) }

// source is the code system of units.
var source = codesystem.Source{
	URL: "http://unitsofmeasure.org", Name: "UCUM", Version: "2.2", CaseSensitive: true, System: system{}, ReportsReason: true,
	CommonCodes: "http://hl7.org/fhir/ValueSet/ucum-common", ValueSetProperty: properties[propertyComparable].Code,
	Copyright: "The Unified Code for Units of Measure (UCUM). Copyright 1999-2022 Regenstrief Institute, Inc. All rights reserved. " +
		"Licensed under the UCUM License, Version 1.0 (https://ucum.org/license), without warranties or conditions of any kind.",
	Members: `{"id":"ucum","title":"Unified Code for Units of Measure","publisher":"Regenstrief Institute, Inc.","date":"2024-06-17",` +
		`"valueSet":"http://unitsofmeasure.org/vs","filter":[` +
		`{"code":"canonical","description":"The unit has the same canonical form","operator":["=","in"],"value":"a unit"},` +
		`{"code":"comparable","description":"The unit measures the same quantity","operator":["=","in"],"value":"a unit"},` +
		`{"code":"property","description":"The unit measures the quantity of a base unit","operator":["="],"value":"the quantity of a base unit, such as length"}],` +
		`"property":[{"code":"canonical","description":"The unit in base units, without a factor","type":"code"},` +
		`{"code":"property","description":"The measured quantity, if it is that of a base unit","type":"string"}]}`,
}

// system implements [codesystem.System] and several optional interfaces.
type system struct{}

// parseValid returns the factors of a code, or nil if the code is invalid.
func parseValid(code []byte) []part {
	parts, _, err := parse(string(code))
	if err != nil {
		return nil
	}
	return parts
}

// Locate returns the concept for an expression.
func (system) Locate(code []byte) (c codesystem.Concept, ok bool) {
	if parseValid(code) == nil {
		return c, false
	}
	return codesystem.Concept{Code: bytes.Clone(code)}, true
}

// InvalidReason returns the error in an invalid code and its position, in the wording of HL7's servers.
func (system) InvalidReason(code []byte) string {
	if _, _, err := parse(string(code)); err != nil {
		why := err.Error()
		return fmt.Sprintf("Error processing unit '%s': %s%s", code, strings.ToUpper(why[:1]), why[1:])
	}
	return ""
}

func (system) Code(c codesystem.Concept) []byte { return c.Code }

// Concept returns the expression of a concept, which is also its display, as in HL7's servers.
func (system) Concept(c codesystem.Concept) (code, name []byte, flags codesystem.Flags) {
	return c.Code, c.Code, 0
}

// AppendTexts appends the display of a concept and its expression in words.
func (s system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	text := codesystem.Text{Language: s.Language(), Use: codesystem.PreferredForLanguage, Value: c.Code, IsDisplay: true}
	dst = append(dst, text)
	text.Value, text.IsDisplay = []byte(describe(parseValid(c.Code))), false
	return append(dst, text)
}

// Language returns the language of the displays.
func (system) Language() string { return "en" }

// Properties, named like FHIR's filters (Using UCUM with HL7 Standards). Comparable units have the same canonical form.
// property is the quantity that a base unit measures, such as length.
const (
	propertyCanonical = iota
	propertyComparable
	propertyProperty
)

var properties = []codesystem.Property{{Code: "canonical"}, {Code: "comparable"}, {Code: "property"}}

// Properties returns the properties of units.
func (system) Properties() []codesystem.Property { return properties }

// Values calls visit with the value of a property if the unit has one.
func (system) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	if text := propertyValue(dimensionOf(parseValid(c.Code)), property); text != "" {
		visit([]byte(text))
	}
}

func propertyValue(d dimension, property int) string {
	if property != propertyProperty {
		return d.String()
	}
	for code, exponent := range d {
		if len(d) == 1 && exponent == 1 && loadEssence().units[code].Arbitrary != flagTrue {
			return loadEssence().units[code].Property
		}
	}
	return ""
}

// FilterValue returns the normalized value of a filter. Expressions are replaced by their canonical form.
func (system) FilterValue(property int, value string) (string, error) {
	if property == propertyProperty {
		return value, checkMeasurable(value)
	}
	_, d, err := parse(value)
	return d.String(), err
}

// checkMeasurable returns an error unless value is a quantity that a base unit measures.
func checkMeasurable(value string) error {
	var names []string
	for code, u := range loadEssence().units {
		if u.measure.dimension[code] != 0 && u.Arbitrary != flagTrue {
			names = append(names, u.Property)
		}
	}
	if slices.Contains(names, value) {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("not the quantity of a base unit; those are %s", strings.Join(names, ", "))
}

// Explain returns why a unit does not match a filter, in the wording of HL7's servers.
func (s system) Explain(c codesystem.Concept, property int, op, value string) string {
	canonical, err := s.FilterValue(property, value)
	if property == propertyProperty || op != "=" || err != nil {
		return ""
	}
	return fmt.Sprintf("Code %s has canonical form %s, not %s as required", c.Code, dimensionOf(parseValid(c.Code)), canonical)
}

// AppendValues appends the values of all properties except comparable, which exists only for filters.
func (system) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	d := dimensionOf(parseValid(c.Code))
	dst = append(dst, codesystem.Value{Property: &properties[propertyCanonical], Text: []byte(d.String()), Member: "valueCode"})
	if text := propertyValue(d, propertyProperty); text != "" {
		dst = append(dst, codesystem.Value{Property: &properties[propertyProperty], Text: []byte(text), Member: "valueString"})
	}
	return dst
}

var (
	_ codesystem.System        = system{}
	_ codesystem.CodeExplainer = system{}
	_ codesystem.Filterable    = system{}
	_ codesystem.FilterReader  = system{}
	_ codesystem.Converter     = system{}
)

// describe returns an expression in words, such as (milligram) / (deciliter) for mg/dL.
func describe(parts []part) string {
	var b strings.Builder
	for i := range parts {
		p := &parts[i]
		switch {
		case p.divides && i == 0:
			b.WriteString("/ ")
		case p.divides:
			b.WriteString(" / ")
		case i > 0:
			b.WriteString(" * ")
		}
		p.describe(&b)
	}
	return b.String()
}

func (p *part) describe(b *strings.Builder) {
	switch {
	case p.group != nil:
		b.WriteString("(" + describe(p.group) + ")")
	case p.unit == nil && p.number == "":
		b.WriteString("1") // the factor is an annotation
	case p.unit == nil:
		b.WriteString(p.number)
	default:
		b.WriteString("(")
		if p.prefix != nil {
			b.WriteString(p.prefix.Name)
		}
		b.WriteString(p.unit.Names[0])
		if p.exponent != 1 {
			b.WriteString(" ^ " + strconv.Itoa(p.exponent))
		}
		b.WriteString(")")
	}
}
