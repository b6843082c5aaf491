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

// source is the code system of language tags. Like HL7's, it has no version: valid tags stay valid as the registry grows.
var source = codesystem.Source{
	URL: "urn:ietf:bcp:47", Name: "Tags for the Identification of Languages", CaseSensitive: true, System: system{},
	Copyright:   "Language Subtag Registry of 2025-08-25, IANA (CC0 1.0). Names in German, Spanish, French and Dutch: Unicode CLDR 32 (Unicode License).",
	CommonCodes: "http://terminology.hl7.org/ValueSet/Languages", ValueSets: valueSets,
	Members: `{"id":"bcp-47","title":"Language tags (BCP 47)","publisher":"IETF","property":[{"code":"language","type":"code"},{"code":"ext-lang","type":"code"},` +
		`{"code":"script","type":"code"},{"code":"region","type":"code"},{"code":"variant","type":"code"},{"code":"extension","type":"code"},` +
		`{"code":"private-use","type":"code"},{"code":"canonical","type":"code"},` +
		`{"code":"comment","uri":"http://hl7.org/fhir/concept-properties#comment","type":"string"}]}`,
}

// valueSets contains HL7's value set of common languages. SOURCE.md describes its origin.
//
//go:embed valuesets.json.zst
var valueSets []byte

// system implements [codesystem.System] and several optional interfaces.
type system struct{}

// Locate returns the concept for a tag.
func (system) Locate(code []byte) (c codesystem.Concept, ok bool) {
	t, err := parse(string(code))
	if err != nil {
		return c, false
	}
	return codesystem.Concept{Code: []byte(t.text)}, true
}

// InvalidReason returns why a code is not a valid tag or which case it should have; "" if it is valid.
func (system) InvalidReason(code []byte) string {
	if _, err := parse(string(code)); err != nil {
		return err.Error()
	}
	return ""
}

// tagOf parses the code of a concept returned by Locate.
func tagOf(c codesystem.Concept) tag {
	t, _ := parse(string(c.Code))
	return t
}

func (system) Code(c codesystem.Concept) []byte { return c.Code }

// Concept returns the tag, display and flags of a concept.
func (system) Concept(c codesystem.Concept) (code, name []byte, flags codesystem.Flags) {
	t := tagOf(c)
	if sharedRegistry().isDeprecated(t) {
		flags = codesystem.FlagDeprecated | codesystem.FlagHasStatus
	}
	if display := sharedRegistry().displayOf(t); display != "" {
		name, flags = []byte(display), flags|codesystem.FlagHasDesignations
	}
	return c.Code, name, flags
}

// AppendTexts appends the names of a concept, the display first.
func (system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	return sharedRegistry().appendTexts(dst, tagOf(c))
}

// Language returns the language of the displays, English.
func (system) Language() string { return translatedNames[0].language }

// HasLanguage implements [codesystem.Multilingual]. Names exist in the languages of translatedNames.
func (system) HasLanguage(language string) bool {
	return slices.ContainsFunc(translatedNames, func(n languageNames) bool { return codesystem.HasLanguage([]string{n.language}, language) })
}

// Status returns "deprecated" if the registry deprecates the tag or any of its subtags, otherwise "".
func (system) Status(c codesystem.Concept) string {
	if sharedRegistry().isDeprecated(tagOf(c)) {
		return "deprecated"
	}
	return ""
}

// Definition returns nil, because tags have no definitions.
func (system) Definition(codesystem.Concept) []byte { return nil }

// AppendExtensions appends nothing, because tags have no extensions.
func (system) AppendExtensions(dst []codesystem.Extension, _ codesystem.Concept) []codesystem.Extension {
	return dst
}

// properties are the parts of a tag, indexed by part and named like FHIR's filters (Using BCP-47 with HL7 Standards), followed
// by the canonical form and comments based on the registry.
var properties = []codesystem.Property{
	{Code: "language"}, {Code: "ext-lang"}, {Code: "script"}, {Code: "region"}, {Code: "variant"}, {Code: "extension"}, {Code: "private-use"},
	propertyCanonical: {Code: "canonical"},
	propertyComment:   {Code: "comment", URI: codesystem.PropertyBase + "comment"},
}

const (
	propertyCanonical = int(partPrivateUse) + 1 + iota
	propertyComment
)

// Properties returns the properties of tags.
func (system) Properties() []codesystem.Property { return properties }

// propertyValues returns the values of the property with the given index.
func propertyValues(t tag, property int) (list []string) {
	switch property {
	case propertyCanonical:
		return []string{sharedRegistry().canonicalForm(t)}
	case propertyComment:
		return sharedRegistry().warnings(t)
	}
	for _, s := range t.parts {
		if int(s.part) == property {
			list = append(list, recommendedCase(s.part, s.text))
		}
	}
	return list
}

// Values calls visit with each value of a property until visit returns false.
func (system) Values(c codesystem.Concept, property int, visit func(text []byte) bool) {
	for _, text := range propertyValues(tagOf(c), property) {
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
		for _, text := range propertyValues(t, i) {
			dst = append(dst, codesystem.Value{Property: &properties[i], Text: []byte(text), Member: member})
		}
	}
	return dst
}

// Explain returns the actual value of a property, for users who have a code that does not match a filter.
func (system) Explain(c codesystem.Concept, property int, _, _ string) string {
	values := propertyValues(tagOf(c), property)
	if values == nil {
		return fmt.Sprintf("%s has no %s", c.Code, properties[property].Code)
	}
	return fmt.Sprintf("the %s of %s is %s", properties[property].Code, c.Code, strings.Join(values, ", "))
}

// FilterValue normalizes a filter value to match [system.Values]: recommended case and canonical form.
func (system) FilterValue(property int, value string) (string, error) {
	switch {
	case property == propertyCanonical:
		t, err := parse(value)
		if err != nil {
			return "", err
		}
		return sharedRegistry().canonicalForm(t), nil
	case property <= int(partPrivateUse) && value != "":
		return recommendedCase(part(property), value), nil
	}
	return value, nil
}

var (
	_ codesystem.System          = system{}
	_ codesystem.Filterable      = system{}
	_ codesystem.FilterExplainer = system{}
	_ codesystem.FilterReader    = system{}
	_ codesystem.Annotations     = system{}
	_ codesystem.Multilingual    = system{}
	_ codesystem.CodeExplainer   = system{}
)

// languageNames contains names in one language, from Unicode's CLDR.
type languageNames struct {
	language string
	*display.Dictionary
}

// translatedNames contains the names in each language of the gateway's pages.
var translatedNames = []languageNames{
	{"en", display.English},
	{"de", display.German},
	{"es", display.Spanish},
	{"fr", display.French},
	{"nl", display.Dutch},
}

// subtagNamer is a function that returns the name of a subtag, or "".
type subtagNamer func(s subtag) string

// descriptionOf returns the first description of a subtag in the registry.
func (r *registry) descriptionOf(s subtag) string {
	name := r.record(s).firstValue("Description")
	if name == "Private use" { // private-use subtags are registered as ranges
		name += " " + s.text
	}
	return name
}

// displayName returns the name of a tag: the name of its language, followed by those of other subtags in parentheses, such as
// German (Switzerland). It returns "" if the language has no name.
func (t tag) displayName(name subtagNamer) (main string) {
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

// partLabels are prefixes of subtag names in the style of HL7's terminology server: English (Region=United States).
var partLabels = [partPrivateUse + 1]string{partScript: "Script=", partRegion: "Region=", partVariant: "Variant="}

// displayOf returns the English name of a tag based on the registry, or "".
func (r *registry) displayOf(t tag) string {
	if t.parts == nil {
		return r.wholeTagRecord(t.text).firstValue("Description")
	}
	return t.displayName(r.descriptionOf)
}

// appendTexts appends all names of a tag, the display first.
func (r *registry) appendTexts(dst []codesystem.Text, t tag) []codesystem.Text {
	start := len(dst)
	add := func(language, name string) {
		text := codesystem.Text{Language: language, Value: []byte(name), IsDisplay: len(dst) == start}
		if start == len(dst) || dst[len(dst)-1].Language != language {
			text.Use = codesystem.PreferredForLanguage
		}
		known := func(other codesystem.Text) bool { return other.Language == language && string(other.Value) == name }
		if name != "" && !slices.ContainsFunc(dst[start:], known) {
			dst = append(dst, text)
		}
	}
	add("en", r.displayOf(t))
	for name := range r.wholeTagRecord(t.text).values("Description") {
		add("en", name)
	}
	for name := range r.record(t.language()).values("Description") {
		add("en", t.displayName(func(s subtag) string {
			if s == t.language() {
				return name
			}
			return r.descriptionOf(s)
		}))
	}
	add("en", t.displayName(func(s subtag) string { return partLabels[s.part] + r.descriptionOf(s) }))
	for _, n := range translatedNames {
		add(n.language, t.displayName(n.name))
	}
	return dst
}

// name returns the name of a subtag, or "".
func (n languageNames) name(s subtag) string {
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
