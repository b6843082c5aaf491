// Package usps implements the abbreviations of US states and possessions. SOURCE.md describes their origin.
package usps

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed states.json.zst
var states []byte

func init() { codesystem.Register(source) }

// source is the code system of US states.
var source = codesystem.Source{
	URL: "https://www.usps.com/", Name: "USPS state abbreviations", CaseSensitive: true,
	Copyright: "Facts from Publication 28 of the United States Postal Service, Appendix B",
	Members:   `{"id":"usps","title":"Two-letter state and possession abbreviations"}`,
	System:    embeddedtable.New(states),
}
