package snomed

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// evaluateECL returns the concepts that match an expression constraint.
func (s *System) evaluateECL(text string, spend func(steps int) error) (bitset.Set, error) {
	return nil, outcome.NewIncomplete("not-supported", "expression constraints are not supported: %q", text)
}
