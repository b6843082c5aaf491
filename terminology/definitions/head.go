package definitions

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// LatestOf returns the latest of the resources that have the canonical or id, or nil. Those with content go before those
// without.
func LatestOf(resources []jsontext.Value, m outcome.Missing) (latest jsontext.Value, err error) {
	var best *head
	for _, resource := range resources {
		h, err := HeadOf(resource)
		if err != nil {
			return nil, fmt.Errorf("%v cannot be read: %w", m, err)
		}
		if h.Kind != m.Kind || m.ID != h.ID && m.ID != "" || m.ID == "" && !h.IsNamed(m.Canonical) {
			continue
		}
		if best == nil || h.hasContent() && !best.hasContent() || h.hasContent() == best.hasContent() && supersedes(h.Version, best.Version) {
			best, latest = h, resource
		}
	}
	return latest, nil
}

// head is what latestOf compares.
type head struct {
	Definition
	Kind    string
	content contentMode
}

func (h *head) hasContent() bool { return h.Kind != "CodeSystem" || h.content.HasConcepts() }

// HeadOf reads what names a resource.
func HeadOf(resource jsontext.Value) (*head, error) {
	h, r := new(head), fhirjson.ReaderOf(resource)
	return h, r.Strings(
		fhirjson.String{Name: "resourceType", Into: &h.Kind}, fhirjson.String{Name: "id", Into: &h.ID},
		fhirjson.String{Name: "url", Into: &h.URL}, fhirjson.String{Name: "version", Into: &h.Version},
		fhirjson.String{Name: "content", Into: (*string)(&h.content)},
	)
}
