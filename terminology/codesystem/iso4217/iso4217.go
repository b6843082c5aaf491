// Package iso4217 implements the codes of currencies (ISO 4217). SOURCE.md describes their origin.
package iso4217

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed currencies.json.zst
var currencies []byte

func init() { codesystem.Register(source) }

// source is the code system of currencies.
var source = codesystem.Source{
	URL: "urn:iso:std:iso:4217", Name: "ISO 4217", Version: "2026-01-01", CaseSensitive: true,
	Copyright: "List one of ISO 4217, as SIX publishes it for ISO; from the PyPI package iso4217, public domain",
	Members: `{"id":"iso-4217","title":"ISO 4217: codes of currencies","property":[{"code":"numeric","type":"code","description":"The number of the currency"},
		{"code":"minor-units","type":"integer","description":"How many digits follow the decimal point"}]}`,
	System: embeddedtable.New(currencies),
}
