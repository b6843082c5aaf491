package fhirapp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func (g *gateway) write(t *testing.T, method, reference, body string) {
	t.Helper()
	if response := g.Ask(method, "/fhir/R4/"+reference, body, "Content-Type", "application/fhir+json"); response.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, reference, response.StatusCode, gatewaytest.Read(t, response))
	}
}

// listing is a value set of codes, and of what others have.
func listing(id, url, codes string, imports ...string) string {
	var includes []string
	for code := range strings.FieldsSeq(codes) {
		includes = append(includes, fmt.Sprintf(`{"system":"http://x.example/cs","concept":[{"code":%q}]}`, code))
	}
	for _, i := range imports {
		includes = append(includes, fmt.Sprintf(`{"valueSet":[%q]}`, i))
	}
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":%q,"url":%q,"status":"active","compose":{"include":[%s]}}`, id, url, strings.Join(includes, ","))
}

func (g *gateway) codesOf(t *testing.T, url string) (codes []string, status string) {
	t.Helper()
	response := g.Get(expandPath(url), "")
	body := gatewaytest.Read(t, response)
	return expandedCodes(t, body), response.Header.Get("Cache-Status")
}

func (g *gateway) wantCodes(t *testing.T, url, want string) {
	t.Helper()
	for range 3 { // made, kept, and from the cache
		if got, _ := g.codesOf(t, url); strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}
