package fhirapp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A client registers, lies in Caddy's storage, is known after a restart, and is gone
// once it has deleted itself.
func TestRegistrationInCaddysStorage(t *testing.T) {
	t.Setenv("REGISTRATION_TOKEN", "sesame")
	block := "fhir_base /fhir/R4\n\n\t\tregistration {\n\t\t\tinitial_access_token {env.REGISTRATION_TOKEN}\n\t\t\tscope demo.read\n\t\t\tprivate_jwks_uri\n\t\t}"
	caddyfile, folder := gatewaytest.ExampleText(t, "fhir_base /fhir/R4", block), gatewaytest.Folder(t)
	g := newGatewayAt(t, caddyfile, folder)

	r := httptest.NewRequest(http.MethodPost, "/oauth2/register", strings.NewReader(`{"redirect_uris":["https://new.example/cb"],"token_endpoint_auth_method":"none"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer sesame")
	var client struct {
		ID    string `json:"client_id"`
		URI   string `json:"registration_client_uri"`
		Token string `json:"registration_access_token"`
	}
	response := g.Send(r)
	if err := json.NewDecoder(response.Body).Decode(&client); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%d %+v %v", response.StatusCode, client, err)
	}

	g = newGatewayAt(t, caddyfile, folder)
	q := url.Values{
		"response_type": {"code"}, "client_id": {client.ID}, "redirect_uri": {"https://new.example/cb"}, "scope": {"openid demo.read"},
		"code_challenge_method": {"S256"}, "code_challenge": {strings.Repeat("A", 43)},
	}
	if to := g.Get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location"); !strings.HasPrefix(to, "/oauth2/login?") {
		t.Errorf("after a restart sent to %q", to)
	}
	r = httptest.NewRequest(http.MethodDelete, strings.TrimPrefix(client.URI, "https://localhost:8443"), nil)
	r.Header.Set("Authorization", "Bearer "+client.Token)
	if got := g.Send(r); got.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", got.StatusCode)
	}
	if got := g.Get("/oauth2/authorize?"+q.Encode(), ""); got.StatusCode != http.StatusBadRequest {
		t.Errorf("after it was deleted: %d", got.StatusCode)
	}
}
