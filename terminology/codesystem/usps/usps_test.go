package usps_test

import (
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "usps", "https://www.usps.com/", false)
	terminologytest.WantCode(t, "https://www.usps.com/", "", "DC", "District of Columbia", "XX")
}
