package bcp47

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func init() { codesystem.Register(source) }

// source is the code system. It has no version, as in HL7's answers: the registry grows, and what was a tag remains one.
var source = codesystem.Source{
	URL: "urn:ietf:bcp:47", Name: "Tags for the Identification of Languages", CaseSensitive: true, System: system{},
	Copyright: "Language Subtag Registry of 2025-08-25, IANA (CC0 1.0). Names in German, Spanish, French and Dutch: Unicode CLDR 32 (Unicode License).",
	Common:    "http://terminology.hl7.org/ValueSet/Languages", ValueSets: valueSets,
	Members: `{"id":"bcp-47","title":"Language tags (BCP 47)","publisher":"IETF","property":[{"code":"language","type":"code"},{"code":"ext-lang","type":"code"},` +
		`{"code":"script","type":"code"},{"code":"region","type":"code"},{"code":"variant","type":"code"},{"code":"extension","type":"code"},` +
		`{"code":"private-use","type":"code"},{"code":"canonical","type":"code"},` +
		`{"code":"comment","uri":"http://hl7.org/fhir/concept-properties#comment","type":"string"}]}`,
}

// valueSets are HL7's list of languages in common use; SOURCE.md says where it is from.
//
//go:embed valuesets.json.zst
var valueSets []byte

// system implements [codesystem.System], and what else there is to say of tags.
type system struct{}

// Locate returns the concept of a tag.
func (system) Locate(code []byte) (c codesystem.Concept, ok bool) {
	t, err := parse(string(code))
	if err != nil {
		return c, false
	}
	return codesystem.Concept{Code: []byte(t.text)}, true
}

// Refusal says why a code is no tag, or in which case it is to be written; "" if it is one.
func (system) Refusal(code []byte) string {
	if _, err := parse(string(code)); err != nil {
		return err.Error()
	}
	return ""
}

// tagOf returns the tag of a concept, which was read before.
func tagOf(c codesystem.Concept) tag {
	t, _ := parse(string(c.Code))
	return t
}

// Code returns a concept's tag.
func (system) Code(c codesystem.Concept) []byte { return c.Code }

// Concept returns a concept's tag, display and flags.
func (system) Concept(c codesystem.Concept) (code, name []byte, flags codesystem.Flags) {
	t := tagOf(c)
	if registered().isDeprecated(t) {
		flags = codesystem.FlagDeprecated | codesystem.FlagStatus
	}
	if display := registered().displayOf(t); display != "" {
		name, flags = []byte(display), flags|codesystem.FlagDesignated
	}
	return c.Code, name, flags
}

// AppendTexts appends the names of a concept.
func (system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	return registered().appendTexts(dst, tagOf(c))
}

// Language returns the language of the displays.
func (system) Language() string { return namesIn[0].language }

// HasLanguage implements [codesystem.Dialects].
func (system) HasLanguage(language string) bool {
	return slices.ContainsFunc(namesIn, func(n namesOf) bool { return codesystem.HasLanguage([]string{n.language}, language) })
}

// Status returns whether a tag should no longer be used.
func (system) Status(c codesystem.Concept) string {
	if registered().isDeprecated(tagOf(c)) {
		return "deprecated"
	}
	return ""
}

// Definition returns nil: there is none.
func (system) Definition(codesystem.Concept) []byte { return nil }

// AppendExtensions appends nothing.
func (system) AppendExtensions(dst []codesystem.Extension, _ codesystem.Concept) []codesystem.Extension {
	return dst
}

// properties are the parts of a tag, by part, as FHIR names them for filters (Using BCP-47 with HL7 Standards), its canonical form, and
// what the registry advises.
var properties = []codesystem.Property{
	{Code: "language"}, {Code: "ext-lang"}, {Code: "script"}, {Code: "region"}, {Code: "variant"}, {Code: "extension"}, {Code: "private-use"},
	propertyCanonical: {Code: "canonical"},
	propertyComment:   {Code: "comment", URI: codesystem.PropertyBase + "comment"},
}

const (
	propertyCanonical = int(partPrivateUse) + 1 + iota
	propertyComment
)

// Properties returns the properties that a tag may have.
func (system) Properties() []codesystem.Property { return properties }

// valuesOf returns the values of a property.
func valuesOf(t tag, property int) (list []string) {
	switch property {
	case propertyCanonical:
		return []string{registered().canonical(t)}
	case propertyComment:
		return registered().comments(t)
	}
	for _, s := range t.parts {
		if int(s.part) == property {
			list = append(list, cased(s.part, s.text))
		}
	}
	return list
}

// Values calls visit with the values of a property.
func (system) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	for _, text := range valuesOf(tagOf(c), property) {
		if !visit([]byte(text)) {
			return
		}
	}
}

// AppendValues appends the values of all properties.
func (system) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	t := tagOf(c)
	for i := range properties {
		member := "valueCode"
		if i == propertyComment {
			member = "valueString"
		}
		for _, text := range valuesOf(t, i) {
			dst = append(dst, codesystem.Value{Property: &properties[i], Text: []byte(text), Member: member})
		}
	}
	return dst
}

// Explain says what a tag has instead of what a filter wants.
func (system) Explain(c codesystem.Concept, property int, _, _ string) string {
	values := valuesOf(tagOf(c), property)
	if values == nil {
		return fmt.Sprintf("%s has no %s", c.Code, properties[property].Code)
	}
	return fmt.Sprintf("the %s of %s is %s", properties[property].Code, c.Code, strings.Join(values, ", "))
}

// FilterValue returns the value of a filter as [system.Values] has it: in the recommended case, and as a canonical form.
func (system) FilterValue(property int, value string) (string, error) {
	switch {
	case property == propertyCanonical:
		t, err := parse(value)
		if err != nil {
			return "", err
		}
		return registered().canonical(t), nil
	case property <= int(partPrivateUse) && value != "":
		return cased(part(property), value), nil
	}
	return value, nil
}

var (
	_ codesystem.System       = system{}
	_ codesystem.Filters      = system{}
	_ codesystem.Explainer    = system{}
	_ codesystem.FilterReader = system{}
	_ codesystem.Notes        = system{}
	_ codesystem.Dialects     = system{}
	_ codesystem.Refuser      = system{}
)
