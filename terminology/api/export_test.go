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

// SetMaxCachedBytes sets the maximum total size of resources cached by cache-id, in bytes.
func (h *Handler) SetMaxCachedBytes(limit int64) { h.resourceCache.maxBytes = limit }

// PublishedIn returns the definitions of a type as resources.
func PublishedIn(d *definitions.Set, kind string) []definitionResource {
	return listDefinitions(d, kind)
}

// Append appends the resource, or the subset of it that part selects.
func (p *definitionResource) Append(dst []byte, part *expansion.Subset) []byte {
	return p.append(dst, part)
}
