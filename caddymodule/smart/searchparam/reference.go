package searchparam

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// reference is Type/id, an id, or a URL.
type reference struct {
	targets []string
	written string
}

// readReference reads a reference.
func (p Parameter) readReference(s string) criterion { return reference{p.Targets, s} }

// matches compares what is referred to, and of canonical URLs and URIs how they are written.
func (s reference) matches(r resource.Resource, path resource.Path, element []byte) bool {
	if path.Type != "Reference" {
		return matchesURL(s.written, path.Type, primitive(element))
	}
	to, literal, ok := r.Refers(element)
	if !ok {
		return literal != "" && literal == s.written
	}
	if to.Contained != "" {
		return false
	}
	if len(s.targets) > 0 && !slices.Contains(s.targets, to.Type) {
		return false
	}
	if to.Base == "" && to.ID == s.written {
		return true
	}
	searched, ok := r.ParseReference(s.written)
	return ok && searched == to
}

// matchesURL compares URLs. One of a definition may have its version behind a bar, and is found without it as well.
func matchesURL(searched, fhirType, found string) bool {
	if fhirType == "canonical" && !strings.Contains(searched, "|") {
		found, _, _ = strings.Cut(found, "|")
	}
	return found == searched && found != ""
}
