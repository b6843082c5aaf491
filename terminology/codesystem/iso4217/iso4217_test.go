package iso4217_test

import (
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "iso-4217", "urn:iso:std:iso:4217", false)
	terminologytest.WantCode(t, "urn:iso:std:iso:4217", "2026-01-01", "CHF", "Swiss Franc", "BGN")
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=urn:iso:std:iso:4217&code=JPY&property=*": {`"minor-units"`, `"valueInteger":0`, `"392"`},
	})
}
