// Package timezones implements the time zone names in IANA's database. SOURCE.md describes their origin.
package timezones

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed zones.json.zst
var zones []byte

func init() { codesystem.Register(source) }

// source is the code system of time zones.
var source = codesystem.Source{
	URL: "https://www.iana.org/time-zones", Name: "IANA time zones", Version: "2026d", CaseSensitive: true,
	Copyright: "IANA's time zone database, public domain; from the npm package tzdata, © Rogier Schouten, MIT License",
	Members:   `{"id":"time-zones","title":"IANA time zones","property":[{"code":"zone","type":"code","description":"The time zone that an alias refers to"}]}`,
	System:    embeddedtable.New(zones),
}
