package caddymodule

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
	_, address, _ := strings.Cut(g.Get("/fhir/R4/Patient", "").Header.Get("WWW-Authenticate"), `resource_metadata="https://localhost:8443`)
	r := g.Get(strings.TrimSuffix(address, `"`), "")
	var metadata struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
		Methods  []string `json:"bearer_methods_supported"`
	}
	if err := json.Unmarshal([]byte(gatewaytest.Read(t, r)), &metadata); err != nil || r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d %v", address, r.StatusCode, err)
	}
	if metadata.Resource != "https://localhost:8443/fhir/R4" || !slices.Equal(metadata.Servers, []string{"https://localhost:8443"}) ||
		!slices.Contains(metadata.Scopes, "patient/*.rs") || !slices.Equal(metadata.Methods, []string{"header"}) {
		t.Errorf("%+v", metadata)
	}
}
