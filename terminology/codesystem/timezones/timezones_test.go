package timezones_test

import (
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "time-zones", "https://www.iana.org/time-zones", false)
	terminologytest.WantCode(t, "https://www.iana.org/time-zones", "2026d", "US/Eastern", "US/Eastern", "Europe/Bern")
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=https://www.iana.org/time-zones&code=US/Eastern&property=zone": {`"valueCode":"America/New_York"`},
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/timezones&count=1":                     {"Africa/Abidjan"},
	})
}
