package bcp47

import (
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// Source is the code system.
var Source = codesystem.Source{URL: "urn:ietf:bcp:47", Name: "Tags for the Identification of Languages", System: system{}}

// maxTag bounds a tag, in bytes. RFC 5646 §4.4.1 has 35 for what is in use.
const maxTag = 128

// system implements [codesystem.System] and [codesystem.Filters].
type system struct{}

// Locate returns the concept of a tag, in any case, by the tag as it is usually written.
func (system) Locate(code []byte) (c codesystem.Concept, ok bool) {
	tag := string(code)
	if len(tag) > maxTag || strings.Contains(tag, "_") || strings.EqualFold(tag, "root") { // which package language takes as well
		return c, false
	}
	if _, err := language.Raw.Parse(tag); err != nil {
		return c, false
	}
	list := subtags(tag)
	if isRepeated(list) {
		return c, false
	}
	return codesystem.Concept{Code: []byte(cased(list))}, true
}

// Code returns a concept's tag.
func (system) Code(c codesystem.Concept) []byte { return c.Code }

// Concept returns a concept's tag and display.
func (system) Concept(c codesystem.Concept) (code, name []byte, flags codesystem.Flags) {
	return c.Code, []byte(displayOf(string(c.Code))), 0
}

// AppendTexts appends the display of a concept.
func (s system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	_, name, _ := s.Concept(c)
	if len(name) == 0 {
		return dst
	}
	return append(dst, codesystem.Text{Language: s.Language(), Use: codesystem.PreferredForLanguage, Value: name, Display: true})
}

// Language returns the language of the displays.
func (system) Language() string { return "en" }

// displayOf returns the display of a tag: its language, and in brackets what narrows it, such as German (Switzerland);
// "" if the language has no name here.
func displayOf(tag string) string {
	parsed, err := language.Raw.Parse(tag)
	if err != nil {
		return ""
	}
	base, script, region := parsed.Raw()
	name := display.English.Languages().Name(base)
	if name == "" || base == (language.Base{}) {
		return ""
	}
	var narrower []string
	for _, s := range subtags(tag) {
		switch s.part {
		case partScript:
			narrower = append(narrower, orText(display.English.Scripts().Name(script), s))
		case partRegion:
			narrower = append(narrower, orText(display.English.Regions().Name(region), s))
		case partVariant, partExtension, partPrivateUse:
			narrower = append(narrower, s.text)
		}
	}
	if len(narrower) == 0 || tag[1] == '-' { // i-klingon is registered as a whole
		return name
	}
	return name + " (" + strings.Join(narrower, ", ") + ")"
}

// orText returns the name of a subtag, or the subtag itself if it has none.
func orText(name string, s subtag) string {
	if name == "" {
		return s.text
	}
	return name
}

// properties are the parts of a tag, by part; FHIR names them for filters (R5, Using BCP-47 with HL7 Standards).
var properties = []codesystem.Property{
	{Code: "language"}, {Code: "ext-lang"}, {Code: "script"}, {Code: "region"}, {Code: "variant"}, {Code: "extension"}, {Code: "private-use"},
}

// Properties returns the parts that a tag may have.
func (system) Properties() []codesystem.Property { return properties }

// Values calls visit with the subtags of one kind.
func (system) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	for _, s := range subtags(string(c.Code)) {
		if s.part == part(property) && !visit([]byte(s.text)) {
			return
		}
	}
}

// AppendValues appends the parts of a tag.
func (system) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	for _, s := range subtags(string(c.Code)) {
		dst = append(dst, codesystem.Value{Property: &properties[s.part], Text: []byte(s.text), Member: "valueCode"})
	}
	return dst
}

var (
	_ codesystem.System  = system{}
	_ codesystem.Filters = system{}
)
