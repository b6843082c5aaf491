package expansion

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// append appends the extensions of an entry, followed by a comma.
func (w *extensionWriter) append(dst []byte, e definitions.LocatedEntry, flags codesystem.Flags) []byte {
	start := len(dst)
	list := fhirjson.Array{Name: "extension"}
	system, own := w.extensionsOf(e)
	for _, kind := range shownFromSystem {
		if own[kind] == nil {
			dst = appendShown(dst, &list, kind, system[kind])
		}
	}
	for _, kind := range shownFromValueSet {
		dst = appendShown(dst, &list, kind, own[kind])
	}
	for _, value := range w.alternates {
		dst = appendShown(dst, &list, codesystem.ExtensionAlternate, value)
	}
	dst = w.appendProperties(dst, &list, e, flags, system, own)
	if list.IsEmpty() {
		return dst
	}
	dst = append(list.End(dst), ',')
	return slices.Delete(dst, start, start+1) // the comma before
}

// Extensions that are copied from a code system or value set.
var (
	shownFromSystem   = []codesystem.ExtensionKind{codesystem.ExtensionStyle, codesystem.ExtensionXHTML, codesystem.ExtensionDescriptionID}
	shownFromValueSet = []codesystem.ExtensionKind{
		codesystem.ExtensionDeprecated, codesystem.ExtensionStandardsStatus, codesystem.ExtensionConceptDefinition, codesystem.ExtensionDescriptionID, codesystem.ExtensionStyle, codesystem.ExtensionXHTML,
	}
)

// appendShown appends an extension, unless its value is nil.
func appendShown(dst []byte, list *fhirjson.Array, kind codesystem.ExtensionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	dst = append(append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase...), shownNames[kind]...)
	dst = append(append(dst, '"', ','), value...)
	return append(dst, '}')
}

// shownNames ends the urls of the copied extensions.
var shownNames = map[codesystem.ExtensionKind]string{
	codesystem.ExtensionStyle: "rendering-style", codesystem.ExtensionXHTML: "rendering-xhtml", codesystem.ExtensionDeprecated: "valueset-deprecated",
	codesystem.ExtensionStandardsStatus: "structuredefinition-standards-status", codesystem.ExtensionConceptDefinition: "valueset-concept-definition",
	codesystem.ExtensionDescriptionID: "coding-sctdescid", codesystem.ExtensionAlternate: "codesystem-alternate",
}

// extensionsOf returns the extensions of the code system with its supplements, and those of the value set that lists the
// entry.
func (w *extensionWriter) extensionsOf(e definitions.LocatedEntry) (system, own extensionValues) {
	w.alternates = w.alternates[:0]
	for cs, concept := range w.x.Library.Described(e, w.x.List.Supplements) {
		w.extended = cs.Concepts.Notes.AppendExtensions(w.extended[:0], concept)
		for _, x := range w.extended {
			system[x.Kind] = x.Value
			if x.Kind == codesystem.ExtensionAlternate {
				w.alternates = append(w.alternates, x.Value)
			}
		}
	}
	if e.Own() != 0 {
		table, _ := w.x.Library.Row(e.Listed)
		for _, x := range table.ExtensionsOf(e.Listed) {
			own[x.Kind] = table.Texts.At(x.Value)
		}
	}
	return system, own
}
