// Package iso3166 implements the codes of countries and their subdivisions (ISO 3166-1 to 3166-3). SOURCE.md describes their
// origin.
package iso3166

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed countries.json.zst
var countries []byte

//go:embed subdivisions.json.zst
var subdivisions []byte

//go:embed former.json.zst
var formerCountries []byte

const copyright = "Codes of ISO 3166, from the npm packages iso-3166, © Titus Wormer, and i18n-iso-countries, © widdix GmbH; both MIT License"

func init() { codesystem.Register(source, subdivisionSource, formerSource) }

// source contains the alpha-2, alpha-3 and numeric codes of countries.
var source = codesystem.Source{
	URL: "urn:iso:std:iso:3166", Name: "ISO 3166-1", Version: "2018", CaseSensitive: true, Copyright: copyright,
	Members: `{"id":"iso-3166-1","title":"ISO 3166-1: codes of countries","property":[{"code":"user-assigned","type":"boolean","description":"The code means what its users agree on"}]}`,
	System:  embeddedtable.New(countries),
}

// subdivisionSource contains the codes of subdivisions, such as states and provinces.
var subdivisionSource = codesystem.Source{
	URL: "urn:iso:std:iso:3166:-2", Name: "ISO 3166-2", Version: "2020", CaseSensitive: true, Copyright: copyright,
	Members: `{"id":"iso-3166-2","title":"ISO 3166-2: codes of subdivisions of countries","hierarchyMeaning":"part-of"}`,
	System:  embeddedtable.New(subdivisions),
}

// formerSource contains the codes of former countries.
var formerSource = codesystem.Source{
	URL: "urn:iso:std:iso:3166:-3", Name: "ISO 3166-3", Version: "2020", CaseSensitive: true, Copyright: copyright,
	Members: `{"id":"iso-3166-3","title":"ISO 3166-3: codes of former countries"}`,
	System:  embeddedtable.New(formerCountries),
}
