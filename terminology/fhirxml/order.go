package fhirxml

import (
	"slices"
	"strings"
)

// resourceStart are the elements that every resource begins with.
var resourceStart = []string{"id", "meta", "implicitRules", "language", "text", "contained", "extension", "modifierExtension"}

// elementStart are the elements that every element begins with. The id is an attribute.
var elementStart = []string{"extension", "modifierExtension"}

// orders are the elements of resources, in their order. Resources that are not here are written as they
// are in the JSON.
var orders = map[string][]string{
	"ValueSet": {
		"url", "identifier", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "description",
		"useContext", "jurisdiction", "immutable", "purpose", "copyright", "compose", "expansion",
	},
	"CapabilityStatement": {
		"url", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "description", "useContext",
		"jurisdiction", "purpose", "copyright", "kind", "instantiates", "imports", "software", "implementation", "fhirVersion",
		"format", "patchFormat", "implementationGuide", "rest",
	},
	"TerminologyCapabilities": {
		"url", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "description", "useContext",
		"jurisdiction", "purpose", "copyright", "kind", "software", "implementation", "lockedDate", "codeSystem", "expansion",
		"codeSearch", "validateCode", "translation", "closure",
	},
}

// sorted returns the members of an object in the order of XML. resource is the type of a resource, or
// empty for any other element.
func sorted(members []member, resource string) []member {
	start := elementStart
	if resource != "" {
		start = resourceStart
	}
	order := slices.Concat(start, orders[resource])
	rank := func(m member) int {
		if i := slices.Index(order, strings.TrimPrefix(m.name, "_")); i >= 0 {
			return i
		}
		return len(order)
	}
	return slices.SortedStableFunc(slices.Values(members), func(a, b member) int { return rank(a) - rank(b) })
}
