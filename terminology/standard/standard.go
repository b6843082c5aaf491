// Package standard registers the code systems, file formats and operations of the standard build, one per line.
package standard

import (
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/bcp13"        // media types
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/bcp47"        // language tags
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/icd10convert" // file formats of ICD-10-CM and ICD-10-PCS
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/iso3166"      // countries
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/iso4217"      // currencies
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/loinc"        // LOINC releases
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/m49"          // countries and regions of the UN
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed"       // SNOMED CT releases (RF2)
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomedgps"    // SNOMED CT Global Patient Set
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/timezones"    // IANA time zones
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/ucum"         // units
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/usps"         // US states
	_ "github.com/caddy-fhir/caddy-fhir/terminology/codesystem/vaccines"     // vaccines (CVX) and manufacturers (MVX)
	_ "github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"                 // XML format
	_ "github.com/caddy-fhir/caddy-fhir/terminology/operation/batch"         // ValueSet/$batch-validate-code
	_ "github.com/caddy-fhir/caddy-fhir/terminology/operation/lookup"        // CodeSystem/$lookup
	_ "github.com/caddy-fhir/caddy-fhir/terminology/operation/related"       // ValueSet/$related, $compare
	_ "github.com/caddy-fhir/caddy-fhir/terminology/operation/subsumes"      // CodeSystem/$subsumes
	_ "github.com/caddy-fhir/caddy-fhir/terminology/operation/translate"     // ConceptMap/$translate
	_ "github.com/caddy-fhir/caddy-fhir/terminology/operation/validate"      // CodeSystem/$validate-code, ValueSet/$validate-code
)
