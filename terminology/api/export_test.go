package api

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// Limits exported for tests.
const (
	MaxBody            = maxBody
	MaxResources       = maxResources
	MaxParameterLength = maxParameterLength
)

// SetMostRemembered sets the maximum total size of resources cached by cache-id, in bytes.
func (h *Handler) SetMostRemembered(most int64) { h.resourceCache.maxBytes = most }

// PublishedIn returns the definitions of a type as resources.
func PublishedIn(d *definitions.Set, kind string) []definitionResource {
	return listDefinitions(d, kind)
}

// Append appends the resource, or the subset of it that part selects.
func (p *definitionResource) Append(dst []byte, part *expansion.Subset) []byte {
	return p.append(dst, part)
}
