package api

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// Limits, for tests that exceed them.
const (
	MaxBody            = maxBody
	MaxResources       = maxResources
	MaxParameterLength = maxParameterLength
)

// SetMostRemembered sets the maximum size of resources cached by cache-id, in bytes.
func (h *Handler) SetMostRemembered(most int64) { h.resourceCache.maxBytes = most }

// PublishedIn returns the definitions of a type as resources.
func PublishedIn(d *definitions.Set, kind string) []definitionResource {
	return listDefinitions(d, kind)
}

// Append appends the resource.
func (p *definitionResource) Append(dst []byte, part *expansion.Subset) []byte {
	return p.append(dst, part)
}
