package table

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Status returns why a concept is not simply active, or "".
func (t *Table) Status(c codesystem.Concept) string {
	concept := c.Number
	if status := statusProperty(t, concept); status != "" {
		return status
	}
	value := t.concepts.texts.At(t.extensions.get(concept, codesystem.ExtensionStandardsStatus))
	if status := strings.Trim(fhirjson.ValueText(value), `"`); status == "deprecated" || status == "withdrawn" {
		return status
	}
	switch flags := t.concepts.flags[concept]; {
	case flags&codesystem.FlagDeprecated != 0:
		return "deprecated"
	case flags&codesystem.FlagInactive != 0:
		return "inactive"
	}
	return ""
}

// statusProperty returns the value of a status property other than active, or "".
func statusProperty(t *Table, concept uint32) string {
	for i, p := range t.properties {
		if !p.Is("status") {
			continue
		}
		var status string
		t.Values(codesystem.At(concept), i, func(value []byte) bool { status = string(value); return false })
		if status != "" && !strings.EqualFold(status, "active") {
			return status
		}
	}
	return ""
}
