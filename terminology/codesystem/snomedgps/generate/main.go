// Command generate builds the table of the Global Patient Set.
package main

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{"patient-set.json.zst": patientSet}.Main()
}

// patientSet returns the Global Patient Set with the codes of a value set by HL7.
func patientSet(p generate.Packages) (generate.CodeSystem, error) {
	var valueSet struct {
		Compose struct {
			Include []struct{ Concept []*generate.Concept }
		}
	}
	if err := p.NPMJSON("hl7.terminology.r4@7.0.1", "ValueSet-snomed-intl-gps.json", &valueSet); err != nil {
		return generate.CodeSystem{}, err
	}
	return generate.NewTable(valueSet.Compose.Include[0].Concept), nil
}
