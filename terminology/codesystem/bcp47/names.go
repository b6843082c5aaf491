package bcp47

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
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
