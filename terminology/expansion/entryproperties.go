package expansion

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// appendProperties appends the properties of an entry: a status other than active, extensions that R5 has as properties,
// and the requested ones.
func (w *extensionWriter) appendProperties(dst []byte, list *fhirjson.Array, e definitions.LocatedEntry, flags codesystem.Flags, system, own extensionValues) []byte {
	if flags&codesystem.FlagStatus != 0 {
		if status := w.x.Library.Systems.CodeSystems[e.CodeSystem].Concepts.Notes.Status(e.At); status != "" {
			dst = w.beginProperty(dst, list, codesystem.Property{Code: "status", URI: codesystem.PropertyBase + "status"}, "valueCode")
			dst = append(fhirjson.AppendString(dst, status), propertyEnd...)
		}
	}
	for _, p := range extensionProperties {
		value := own[p.kind]
		if value == nil {
			value = system[p.kind]
		}
		if value != nil {
			dst = w.beginProperty(dst, list, p.property, p.member)
			dst = append(append(dst, fhirjson.ValueText(value)...), propertyEnd...)
		}
	}
	if len(w.x.query.Properties) == 0 || !e.IsKnown() {
		return dst
	}
	cs := w.x.Library.Systems.CodeSystems[e.CodeSystem]
	if meaning := cs.Concepts.Notes.Definition(e.At); meaning != nil && slices.Contains(w.x.query.Properties, "definition") {
		dst = w.beginProperty(dst, list, codesystem.Property{Code: "definition", URI: codesystem.PropertyBase + "definition"}, "valueString")
		dst = append(fhirjson.AppendString(dst, meaning), propertyEnd...)
	}
	dst = w.appendRelated(dst, list, "parent", cs, cs.Concepts.Hierarchy.Parents(e.At.Number))
	dst = w.appendRelated(dst, list, "child", cs, cs.Concepts.Hierarchy.Children(e.At.Number))
	for cs, concept := range w.x.Library.Described(e, w.x.List.Supplements) {
		dst = w.appendAsked(dst, list, cs, concept)
	}
	return dst
}

// extensionProperties are the extensions that R5 has as properties.
var extensionProperties = []struct {
	kind     codesystem.ExtensionKind
	property codesystem.Property
	member   string
}{
	{codesystem.ExtensionLabel, codesystem.Property{Code: "label", URI: codesystem.PropertyBase + "label"}, "valueString"},
	{codesystem.ExtensionOrder, codesystem.Property{Code: "order", URI: codesystem.PropertyBase + "order"}, "valueDecimal"},
	{codesystem.ExtensionWeight, codesystem.Property{Code: "weight", URI: codesystem.PropertyBase + "itemWeight"}, "valueDecimal"},
}

// appendRelated appends the codes of parents or children if requested by name: FHIR defines these properties for every
// code system (R4 §4.8.10), whatever expresses its hierarchy.
func (w *extensionWriter) appendRelated(dst []byte, list *fhirjson.Array, name string, cs *definitions.CodeSystem, related []uint32) []byte {
	if !slices.Contains(w.x.query.Properties, name) {
		return dst
	}
	for _, other := range related {
		dst = w.beginProperty(dst, list, codesystem.Property{Code: name, URI: codesystem.PropertyBase + name}, "valueCode")
		dst = append(fhirjson.AppendString(dst, cs.Concepts.Code(codesystem.At(other))), propertyEnd...)
	}
	return dst
}

// appendAsked appends the properties of a concept that were requested, by name or by * for all.
func (w *extensionWriter) appendAsked(dst []byte, list *fhirjson.Array, cs *definitions.CodeSystem, c codesystem.Concept) []byte {
	all := slices.Contains(w.x.query.Properties, "*")
	w.values = cs.Concepts.AppendValues(w.values[:0], c)
	for i := range w.values {
		v := &w.values[i]
		p := v.Property
		told := p.Is("status") && !strings.EqualFold(string(v.Text), "active") ||
			(p.Code == "parent" || p.Code == "child") && slices.Contains(w.x.query.Properties, p.Code)
		if told || !all && !slices.Contains(w.x.query.Properties, p.Code) {
			continue
		}
		dst = w.beginProperty(dst, list, codesystem.Property{Code: p.Code, URI: p.URI}, v.Member)
		dst = append(v.AppendJSON(dst), propertyEnd...)
	}
	return dst
}

// beginProperty appends a property of an entry up to its value, and declares the property for the whole expansion.
func (w *extensionWriter) beginProperty(dst []byte, list *fhirjson.Array, p codesystem.Property, member string) []byte {
	if !slices.ContainsFunc(w.declared, func(d codesystem.Property) bool { return d.Code == p.Code }) {
		w.declared = append(w.declared, p)
	}
	dst = append(list.Next(dst), `{"url":"`+propertyValue+`","extension":[{"url":"code","valueCode":`...)
	dst = append(fhirjson.AppendString(dst, p.Code), `},{"url":"value","`...)
	return append(append(dst, member...), '"', ':')
}

// propertyEnd follows the value of a property.
const propertyEnd = "}]}"

// extensionWriter writes the extensions of entries, those for R5's properties among them.
type extensionWriter struct {
	x          *Expansion
	declared   []codesystem.Property // of entries on the page
	extended   []codesystem.Extension
	alternates [][]byte // other codes of the entry
	values     []codesystem.Value
}

// extensionValues are the extensions of a concept by kind, as JSON members.
type extensionValues [codesystem.ExtensionReplacedBy + 1][]byte

// Extensions for R5's expansion.property and contains.property.
const (
	propertyDeclaration = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property"
	propertyValue       = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property"
)
