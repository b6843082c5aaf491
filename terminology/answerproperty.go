package terminology

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// appendProperties appends the properties of an entry: its status, if that is not active, what extensions
// say that R5 has as properties, and those that were asked for.
func (w *expansionWriter) appendProperties(dst []byte, list *fhirjson.Array, e entry, flags conceptFlags, system, own extensionValues) []byte {
	if flags&flagStatus != 0 {
		if status := w.library.statusOf(e); status != "" {
			dst = w.appendProperty(dst, list, property{code: "status", uri: conceptProperties + "status"}, "valueCode", status, true)
		}
	}
	for _, p := range extensionProperties {
		value := own[p.kind]
		if value == nil {
			value = system[p.kind]
		}
		if value != nil {
			dst = w.appendProperty(dst, list, p.property, p.member, afterColon(value), false)
		}
	}
	if len(w.query.Properties) == 0 || e.concept == none {
		return dst
	}
	cs := w.library.codeSystems[e.codeSystem]
	if meaning := cs.meaningOf(e.concept); meaning != nil && slices.Contains(w.query.Properties, "definition") {
		dst = w.appendProperty(dst, list, property{code: "definition", uri: conceptProperties + "definition"}, "valueString", string(meaning), true)
	}
	dst = w.appendRelated(dst, list, "parent", cs, cs.parents.of(e.concept))
	dst = w.appendRelated(dst, list, "child", cs, cs.children.of(e.concept))
	dst = w.appendAsked(dst, list, cs, e.concept)
	for _, s := range w.expansion.supplements {
		by := w.library.codeSystems[s.by]
		if concept, ok := by.concept(cs.codeOf(e.concept)); ok && s.of == e.codeSystem {
			dst = w.appendAsked(dst, list, by, concept)
		}
	}
	return dst
}

// extensionProperties are the extensions of concepts that R5 has as properties.
var extensionProperties = []struct {
	kind     extensionKind
	property property
	member   string
}{
	{extensionLabel, property{code: "label", uri: conceptProperties + "label"}, "valueString"},
	{extensionOrder, property{code: "order", uri: conceptProperties + "order"}, "valueDecimal"},
	{extensionWeight, property{code: "weight", uri: conceptProperties + "itemWeight"}, "valueDecimal"},
}

// appendRelated appends the codes of the concepts above or below an entry, if they were asked for by name: they are
// properties that FHIR defines for every code system (R4 §4.8.10), however it says what its hierarchy is.
func (w *expansionWriter) appendRelated(dst []byte, list *fhirjson.Array, name string, cs *codeSystem, related []uint32) []byte {
	if !slices.Contains(w.query.Properties, name) {
		return dst
	}
	for _, other := range related {
		dst = w.appendProperty(dst, list, property{code: name, uri: conceptProperties + name}, "valueCode", string(cs.codeOf(other)), true)
	}
	return dst
}

// appendAsked appends the properties of a concept that were asked for by name, or by * for all.
func (w *expansionWriter) appendAsked(dst []byte, list *fhirjson.Array, cs *codeSystem, concept uint32) []byte {
	if cs.values.from == nil {
		return dst
	}
	all := slices.Contains(w.query.Properties, "*")
	for row := cs.values.from[concept]; row < cs.values.from[concept+1]; row++ {
		p := cs.properties[cs.values.property[row]]
		told := p.is("status") && !strings.EqualFold(string(cs.texts.at(cs.values.value[row])), "active") ||
			(p.code == "parent" || p.code == "child") && slices.Contains(w.query.Properties, p.code)
		if told || !all && !slices.Contains(w.query.Properties, p.code) {
			continue
		}
		kind := cs.values.kind[row]
		value, quoted := cs.texts.at(cs.values.value[row]), true
		switch kind {
		case valueCoding:
			value, quoted = cs.texts.at(cs.values.coding[row]), false
		case valueInteger, valueDecimal, valueBoolean:
			quoted = false
		}
		dst = w.appendProperty(dst, list, property{code: p.code, uri: p.uri}, valueMembers[kind], string(value), quoted)
	}
	return dst
}

// appendProperty appends a property of an entry, and notes that there is one of the kind.
func (w *expansionWriter) appendProperty(dst []byte, list *fhirjson.Array, p property, member, value string, quoted bool) []byte {
	if !slices.ContainsFunc(w.declared, func(d property) bool { return d.code == p.code }) {
		w.declared = append(w.declared, p)
	}
	dst = append(list.Next(dst), `{"url":"`+propertyValue+`","extension":[{"url":"code","valueCode":`...)
	dst = append(fhirjson.AppendString(dst, p.code), `},{"url":"value","`...)
	dst = append(append(dst, member...), '"', ':')
	if quoted {
		dst = fhirjson.AppendString(dst, value)
	} else {
		dst = append(dst, value...)
	}
	return append(dst, '}', ']', '}')
}

// statusOf returns why an entry's concept is not simply active; empty if nothing is said.
func (d *definitions) statusOf(e entry) string {
	cs := d.codeSystems[e.codeSystem]
	for i, p := range cs.properties {
		var status string
		if p.is("status") {
			cs.eachValue(e.concept, uint16(i), func(value []byte) bool { status = string(value); return false })
		}
		if status != "" && !strings.EqualFold(status, "active") {
			return status
		}
	}
	if value := cs.extensions.get(e.concept, extensionStandardsStatus); value != 0 {
		if status := strings.Trim(afterColon(cs.texts.at(value)), `"`); status == "deprecated" || status == "withdrawn" {
			return status
		}
	}
	switch flags := cs.flags[e.concept]; {
	case flags&flagDeprecated != 0:
		return "deprecated"
	case flags&flagInactive != 0:
		return "inactive"
	}
	return ""
}
