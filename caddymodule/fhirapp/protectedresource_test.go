package fhirapp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// RFC 9728 §3, §5: who is refused learns from the challenge where the metadata of the API are, and
// from these where to get a token.
func TestProtectedResourceMetadata(t *testing.T) {
	g := exampleGateway(t, nil)
	scopes := checkProtectedResource(t, g, "/.well-known/oauth-protected-resource/fhir/R4", "https://localhost:8443")
	if !slices.Contains(scopes, "patient/*.rs") {
		t.Errorf("scopes %q", scopes)
	}
}

// Where tokens are other issuers', the metadata are below the base, which is what fhir_bearer gets
// of most sites; and at the well-known place too, if it gets that.
func TestProtectedResourceOfOtherIssuers(t *testing.T) {
	t.Parallel()
	first, _ := issuerSaying(t, discoveryDocument)
	second, _ := issuerSaying(t, discoveryDocument)
	g := newGateway(t, guardOnly(first, second))
	checkProtectedResource(t, g, "/fhir/R4/.well-known/oauth-protected-resource", first, second)
	if r := g.Get("/.well-known/oauth-protected-resource/fhir/R4", ""); r.StatusCode != http.StatusOK {
		t.Errorf("at the well-known place: %d", r.StatusCode)
	}
}

// checkProtectedResource checks where a challenge says that the metadata are, and what they say. It
// returns the scopes.
func checkProtectedResource(t *testing.T, g *gateway, path string, servers ...string) []string {
	t.Helper()
	const origin = "https://localhost:8443"
	if challenge := g.Get("/fhir/R4/Patient", "").Header.Get("WWW-Authenticate"); !strings.HasSuffix(challenge, ` resource_metadata="`+origin+path+`"`) {
		t.Errorf("challenge %s", challenge)
	}
	r := g.Get(path, "")
	var metadata struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
		Methods  []string `json:"bearer_methods_supported"`
	}
	if err := json.Unmarshal([]byte(gatewaytest.Read(t, r)), &metadata); err != nil || r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d %v", path, r.StatusCode, err)
	}
	if metadata.Resource != origin+"/fhir/R4" || !slices.Equal(metadata.Servers, servers) || !slices.Equal(metadata.Methods, []string{"header"}) {
		t.Errorf("%+v", metadata)
	}
	return metadata.Scopes
}
