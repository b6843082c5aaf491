package registration_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// Caddyfile errors contain the line number and the invalid word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	app := gatewaytest.AppCaddyfile
	gatewaytest.CaddyfileErrors{
		{"a system scope", app("registration {\n\t\t\tscope system/*.rs\n\t\t}"), 5, "system/*.rs"},
		{"without a token", app("registration {\n\t\t}"), 5, "initial_access_token"},
		{"with a word", app("registration open"), 4, "open"},
		{"malformed scope", app("registration {\n\t\t\tscope \"a b\"\n\t\t}"), 5, "a b"},
	}.Check(t)
}

// Scripts of every origin can use the registration endpoint (CORS).
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("registration {\n\t\t\tinitial_access_token "+strongToken+"\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodPost, "/oauth2/register", "*", "a-token")
}

// A client that sends a registration request slowly does not delay shutdown.
func TestDrip(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("registration {\n\t\t\tinitial_access_token "+strongToken+"\n\t\t}"))
	gatewaytest.CheckSlowBody(t, g.Server, http.MethodPost, "/oauth2/register", "Content-Type: application/json", "Authorization: Bearer "+strongToken)
}

const strongToken = "0123456789abcdef0123456789abcdef"

// A registration is written to Caddy's storage and survives a restart. DELETE removes it.
func TestRegistrationInCaddysStorage(t *testing.T) {
	t.Setenv("REGISTRATION_TOKEN", "sesame")
	caddyfile := gatewaytest.AuthorizationServer("registration {\n\t\t\tinitial_access_token {env.REGISTRATION_TOKEN}\n\t\t\tscope demo.read\n\t\t}")
	folder := gatewaytest.StorageFolder(t)
	g := gatewaytest.NewInFolder(t, caddyfile, folder)

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

	if _, err := os.Stat(filepath.Join(folder, "fhir", "clients", "localhost-8443", client.ID+".json")); err != nil {
		t.Error(err) // backups include the folder fhir
	}
	g = gatewaytest.NewInFolder(t, caddyfile, folder)
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

// With a store key, all registered clients are in the store, including clients that registered earlier.
func TestStoreKeyTakesOverClients(t *testing.T) {
	t.Parallel()
	path, folder := filepath.Join(t.TempDir(), "shared.db"), t.TempDir()
	const storeKey = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=" // 32 bytes
	sharing := func(lines string) string {
		return gatewaytest.AuthorizationServer("store file {\n\t\t\tpath " + path + "\n\t\t}\n\t\tregistration {\n\t\t\tinitial_access_token sesame\n\t\t}" + lines)
	}
	register := func(g *gatewaytest.Gateway) (uri, token string) {
		response := g.Do(http.MethodPost, "/oauth2/register", `{"redirect_uris":["https://new.example/cb"],"token_endpoint_auth_method":"none"}`,
			"Content-Type", "application/json", "Authorization", "Bearer sesame")
		var client struct {
			URI   string `json:"registration_client_uri"`
			Token string `json:"registration_access_token"`
		}
		if err := json.NewDecoder(response.Body).Decode(&client); err != nil || client.Token == "" {
			t.Fatalf("%+v %v", client, err)
		}
		return strings.TrimPrefix(client.URI, "https://localhost:8443"), client.Token
	}
	ask := func(g *gatewaytest.Gateway, method, uri, token string) int {
		return g.Do(method, uri, "", "Authorization", "Bearer "+token).StatusCode
	}
	before, beforeToken := register(gatewaytest.NewInFolder(t, sharing(""), folder))
	with := sharing("\n\t\tstore_key " + storeKey)
	one, other := gatewaytest.NewInFolder(t, with, folder), gatewaytest.New(t, with)
	if status := ask(one, http.MethodGet, before, beforeToken); status != http.StatusOK {
		t.Errorf("client registered before: %d", status)
	}
	since, sinceToken := register(one)
	for uri, token := range map[string]string{before: beforeToken, since: sinceToken} {
		if status := ask(other, http.MethodGet, uri, token); status != http.StatusOK {
			t.Errorf("at another gateway: %d", status)
		}
		if status := ask(one, http.MethodDelete, uri, token); status != http.StatusNoContent {
			t.Errorf("DELETE: %d", status)
		}
		if status := ask(other, http.MethodGet, uri, token); status != http.StatusUnauthorized {
			t.Errorf("at another gateway, once it was deleted: %d", status)
		}
	}
}
