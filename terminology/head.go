package terminology

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// latestOf returns the latest of the resources that have the canonical or id, or nil. Those with content go before those
// without.
func latestOf(resources []jsontext.Value, m Missing) (latest jsontext.Value, err error) {
	var best *head
	for _, resource := range resources {
		h, err := headOf(resource)
		if err != nil {
			return nil, fmt.Errorf("%v cannot be read: %w", m, err)
		}
		if h.kind != m.Kind || m.ID != h.id && m.ID != "" || m.ID == "" && !h.isNamed(m.Canonical) {
			continue
		}
		if best == nil || h.hasContent() && !best.hasContent() || h.hasContent() == best.hasContent() && supersedes(h.version, best.version) {
			best, latest = h, resource
		}
	}
	return latest, nil
}

// head is what latestOf compares.
type head struct {
	definition
	kind    string
	content contentMode
}

func (h *head) hasContent() bool { return h.kind != "CodeSystem" || h.content.hasConcepts() }

func headOf(resource jsontext.Value) (*head, error) {
	h, r := new(head), fhirjson.ReaderOf(resource)
	return h, r.Strings(
		fhirjson.String{Name: "resourceType", Into: &h.kind}, fhirjson.String{Name: "id", Into: &h.id},
		fhirjson.String{Name: "url", Into: &h.url}, fhirjson.String{Name: "version", Into: &h.version},
		fhirjson.String{Name: "content", Into: (*string)(&h.content)},
	)
}
