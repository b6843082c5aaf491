package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// TestSearchByIdentifier finds definitions by their identifiers.
func TestSearchByIdentifier(t *testing.T) {
	named := func(url, oid string) string {
		return fmt.Sprintf(`{"resourceType":"ValueSet","id":"v","url":%q,"identifier":[{"system":"urn:ietf:rfc:3986","value":%q}],"compose":{"include":[]}}`, url, oid)
	}
	h := &api.Handler{Library: terminologytest.Library(t, named("http://x/1", "urn:oid:1.1"), named("http://x/2", "urn:oid:1.2"))}
	for query, want := range map[string]float64{
		"identifier=urn:oid:1.1": 1, "identifier=urn:oid:1.1,urn:oid:1.2": 2, "identifier=urn:oid:1": 0, "identifier=": 0,
		"identifier=urn:ietf:rfc:3986|urn:oid:1.2": 1, "identifier=urn:ietf:rfc:3986|": 2, "identifier=|urn:oid:1.2": 0, "identifier=|": 0,
		"identifier=urn:oid:1.1&identifier=urn:oid:1.2": 0, "unknown=1": 2,
	} {
		if w, got := terminologytest.Call(t, h, "GET", "/ValueSet?"+query, ""); w.Code != http.StatusOK || got["total"] != want {
			t.Errorf("%s: got %d, %v, want %v", query, w.Code, got["total"], want)
		}
	}
}

// TestStrictSearch refuses unknown parameters to clients that prefer it.
func TestStrictSearch(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	for _, tt := range []struct {
		query, prefer string
		status        int
	}{
		{"unknown=1", "handling=strict", 400},
		{"unknown=1", `respond-async, Handling="strict"; x=1`, 400},
		{"identifier:of-type=1", "handling=strict", 400},
		{"identifier:of-type=1", "", 400},
		{"unknown=1", "handling=lenient", 200},
		{"unknown=1", "", 200},
		{"url=http://x/1&_count=2&_format=json&_summary=true&identifier=1", "handling=strict", 200},
	} {
		if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet?"+tt.query, "", "Prefer", tt.prefer); w.Code != tt.status {
			t.Errorf("%s with %q: got %d, want %d: %s", tt.query, tt.prefer, w.Code, tt.status, w.Body)
		}
	}
}
