package bcp47

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

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

// namesOf are the names that Unicode's CLDR has in a language.
type namesOf struct {
	language string
	*display.Dictionary
}

// namesIn are those in the languages of the gateway's pages.
var namesIn = []namesOf{
	{"en", display.English},
	{"de", display.German},
	{"es", display.Spanish},
	{"fr", display.French},
	{"nl", display.Dutch},
}

// namer names a subtag, or returns "".
type namer func(s subtag) string

// described names subtags as the registry does first.
func (r *registry) described(s subtag) string {
	name := r.record(s).first("Description")
	if name == "Private use" { // of a range
		name += " " + s.text
	}
	return name
}

// named returns what a tag is called: its language, and in brackets what narrows it, such as German (Switzerland); "" if the language
// has no name.
func (t tag) named(name namer) (main string) {
	var narrower []string
	for _, s := range t.parts {
		if text := name(s); s.part <= partExtLang {
			main = text
		} else {
			narrower = append(narrower, cmp.Or(text, s.text))
		}
	}
	if main == "" || narrower == nil {
		return main
	}
	return main + " (" + strings.Join(narrower, ", ") + ")"
}

// labels are in names such as English (Region=United States), which HL7's terminology server has given.
var labels = [partPrivateUse + 1]string{partScript: "Script=", partRegion: "Region=", partVariant: "Variant="}

// displayOf returns the name of a tag by the registry, in English; "" if it has none.
func (r *registry) displayOf(t tag) string {
	if t.parts == nil {
		return r.whole(t.text).first("Description")
	}
	return t.named(r.described)
}

// appendTexts appends all names of a tag, its display first.
func (r *registry) appendTexts(dst []codesystem.Text, t tag) []codesystem.Text {
	start := len(dst)
	add := func(language, name string) {
		text := codesystem.Text{Language: language, Value: []byte(name), Display: len(dst) == start}
		if start == len(dst) || dst[len(dst)-1].Language != language {
			text.Use = codesystem.PreferredForLanguage
		}
		known := func(other codesystem.Text) bool { return other.Language == language && string(other.Value) == name }
		if name != "" && !slices.ContainsFunc(dst[start:], known) {
			dst = append(dst, text)
		}
	}
	add("en", r.displayOf(t))
	for name := range r.whole(t.text).all("Description") {
		add("en", name)
	}
	for name := range r.record(t.language()).all("Description") {
		add("en", t.named(func(s subtag) string {
			if s == t.language() {
				return name
			}
			return r.described(s)
		}))
	}
	add("en", t.named(func(s subtag) string { return labels[s.part] + r.described(s) }))
	for _, n := range namesIn {
		add(n.language, t.named(n.name))
	}
	return dst
}

// name returns the name of a subtag, or "".
func (n namesOf) name(s subtag) string {
	switch s.part {
	case partLanguage, partExtLang:
		if base, err := language.ParseBase(s.text); err == nil {
			return n.Languages().Name(base)
		}
	case partScript:
		if script, err := language.ParseScript(s.text); err == nil {
			return n.Scripts().Name(script)
		}
	case partRegion:
		if region, err := language.ParseRegion(s.text); err == nil {
			return n.Regions().Name(region)
		}
	}
	return ""
}
