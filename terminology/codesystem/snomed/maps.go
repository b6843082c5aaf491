package snomed

import "github.com/caddy-fhir/caddy-fhir/terminology/definitions"

// conceptMap returns an implicit concept map (Using SNOMED CT with HL7 Standards, R4 §4.2.5).
func (s *System) conceptMap(address string) (*definitions.ConceptMap, bool) {
	return nil, false
}
