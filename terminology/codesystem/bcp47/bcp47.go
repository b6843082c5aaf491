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

// source is the code system. It has no version, like HL7's: the registry grows, and valid tags stay valid.
var source = codesystem.Source{
	URL: "urn:ietf:bcp:47", Name: "Tags for the Identification of Languages", CaseSensitive: true, System: system{},
	Copyright:   "Language Subtag Registry of 2025-08-25, IANA (CC0 1.0). Names in German, Spanish, French and Dutch: Unicode CLDR 32 (Unicode License).",
	CommonCodes: "http://terminology.hl7.org/ValueSet/Languages", ValueSets: valueSets,
	Members: `{"id":"bcp-47","title":"Language tags (BCP 47)","publisher":"IETF","property":[{"code":"language","type":"code"},{"code":"ext-lang","type":"code"},` +
		`{"code":"script","type":"code"},{"code":"region","type":"code"},{"code":"variant","type":"code"},{"code":"extension","type":"code"},` +
		`{"code":"private-use","type":"code"},{"code":"canonical","type":"code"},` +
		`{"code":"comment","uri":"http://hl7.org/fhir/concept-properties#comment","type":"string"}]}`,
}

// valueSets contains HL7's value set of common languages; SOURCE.md describes its origin.
//
//go:embed valuesets.json.zst
var valueSets []byte

// system implements [codesystem.System] and optional interfaces.
type system struct{}

// Locate returns the concept of a tag.
func (system) Locate(code []byte) (c codesystem.Concept, ok bool) {
	t, err := parse(string(code))
	if err != nil {
		return c, false
	}
	return codesystem.Concept{Code: []byte(t.text)}, true
}

// InvalidReason returns why a code is not a valid tag or has the wrong case; "" for a valid tag.
func (system) InvalidReason(code []byte) string {
	if _, err := parse(string(code)); err != nil {
		return err.Error()
	}
	return ""
}

// tagOf returns the tag of a located concept.
func tagOf(c codesystem.Concept) tag {
	t, _ := parse(string(c.Code))
	return t
}

// Code returns the tag of a concept.
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

// AppendTexts appends the names of a concept.
func (system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	return sharedRegistry().appendTexts(dst, tagOf(c))
}

// Language returns the language of the displays.
func (system) Language() string { return translatedNames[0].language }

// HasLanguage implements [codesystem.Multilingual].
func (system) HasLanguage(language string) bool {
	return slices.ContainsFunc(translatedNames, func(n languageNames) bool { return codesystem.HasLanguage([]string{n.language}, language) })
}

// Status returns "deprecated" for tags that should no longer be used, otherwise "".
func (system) Status(c codesystem.Concept) string {
	if sharedRegistry().isDeprecated(tagOf(c)) {
		return "deprecated"
	}
	return ""
}

// Definition returns nil, because tags have no definitions.
func (system) Definition(codesystem.Concept) []byte { return nil }

// AppendExtensions appends nothing.
func (system) AppendExtensions(dst []codesystem.Extension, _ codesystem.Concept) []codesystem.Extension {
	return dst
}

// properties are the parts of a tag, indexed by part and named as FHIR's filters (Using BCP-47 with HL7 Standards), its
// canonical form, and comments of the registry.
var properties = []codesystem.Property{
	{Code: "language"}, {Code: "ext-lang"}, {Code: "script"}, {Code: "region"}, {Code: "variant"}, {Code: "extension"}, {Code: "private-use"},
	propertyCanonical: {Code: "canonical"},
	propertyComment:   {Code: "comment", URI: codesystem.PropertyBase + "comment"},
}

const (
	propertyCanonical = int(partPrivateUse) + 1 + iota
	propertyComment
)

// Properties returns the declared properties of tags.
func (system) Properties() []codesystem.Property { return properties }

// propertyValues returns the values of a property.
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

// Values calls visit with the values of a property.
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

// Explain returns the actual value of a property that does not match a filter.
func (system) Explain(c codesystem.Concept, property int, _, _ string) string {
	values := propertyValues(tagOf(c), property)
	if values == nil {
		return fmt.Sprintf("%s has no %s", c.Code, properties[property].Code)
	}
	return fmt.Sprintf("the %s of %s is %s", properties[property].Code, c.Code, strings.Join(values, ", "))
}

// FilterValue normalizes the value of a filter like [system.Values]: recommended case and canonical form.
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

// languageNames contains the names in a language from Unicode's CLDR.
type languageNames struct {
	language string
	*display.Dictionary
}

// translatedNames contains the names in the languages of the gateway's pages.
var translatedNames = []languageNames{
	{"en", display.English},
	{"de", display.German},
	{"es", display.Spanish},
	{"fr", display.French},
	{"nl", display.Dutch},
}

// subtagNamer returns the name of a subtag, or "".
type subtagNamer func(s subtag) string

// descriptionOf returns the first description of a subtag in the registry.
func (r *registry) descriptionOf(s subtag) string {
	name := r.record(s).firstValue("Description")
	if name == "Private use" { // registered as a range
		name += " " + s.text
	}
	return name
}

// displayName returns the name of a tag: its language, followed by other subtags in parentheses, such as German
// (Switzerland). It returns "" if the language has no name.
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

// partLabels occur in names such as English (Region=United States), which HL7's terminology server uses.
var partLabels = [partPrivateUse + 1]string{partScript: "Script=", partRegion: "Region=", partVariant: "Variant="}

// displayOf returns the English name of a tag from the registry, or "".
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
