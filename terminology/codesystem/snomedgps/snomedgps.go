// Package snomedgps implements the Global Patient Set: the SNOMED CT codes that can be used without a SNOMED CT license, with
// their fully specified names only. SOURCE.md describes their origin.
package snomedgps

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed patient-set.json.zst
var patientSet []byte

func init() { codesystem.Register(source) }

// source is the Global Patient Set.
var source = codesystem.Source{
	URL: "http://snomed.info/sct", Name: "SNOMED CT Global Patient Set", Version: "gps-20200930", CaseSensitive: true, Content: codesystem.LookupOnly,
	Edition:   "http://snomed.info/sct/900000000000207008", // international edition, on which the set is based
	Copyright: "SNOMED CT Global Patient Set (GPS) © SNOMED International, Creative Commons Attribution 4.0 International (https://creativecommons.org/licenses/by/4.0/). SNOMED CT was originally created by the College of American Pathologists. SNOMED International does not endorse this product",
	Members:   `{"id":"snomed-gps","title":"SNOMED CT Global Patient Set (GPS), September 2020: no edition of SNOMED CT"}`,
	System:    embeddedtable.New(patientSet),
}
