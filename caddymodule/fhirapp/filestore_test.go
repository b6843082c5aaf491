package fhirapp

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
)

// The durable store lies beside the keys, is made when the app starts and not before,
// and only its owner may read it.
func TestDurableStore(t *testing.T) {
	t.Parallel()
	app, root, err := provisionApp(t, &App{Issuer: "https://x.example:8443"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "fhir", "x.example-8443.db")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the start: %v", err)
	}
	startApp(t, app)
	t.Cleanup(func() { _ = app.stores.Durable.(*file.Store).Cleanup() })
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after it: %v, %v", info, err)
	}
}

// startApp starts the app alone, and waits for its work in the background.
func startApp(t *testing.T, app *App) {
	t.Helper()
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := app.keys.JWKS(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestDurableStoreElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	t.Setenv("DURABLE", path)
	app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: json.RawMessage(`{"store":"file","path":"{env.DURABLE}"}`)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.stores.Durable.(*file.Store).Cleanup() })
	startApp(t, app)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// A file that another process holds keeps the configuration from starting, with an
// error that names the file and the option.
func TestDurableStoreInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "held.db")
	held := boltstore.New(path, 0)
	if err := held.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: caddyconfig.JSON(map[string]any{"store": "file", "path": path}, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.stores.Durable.(*file.Store).Cleanup() })
	synctest.Test(t, func(t *testing.T) { // it waits for the other one to let go
		if err := app.Start(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "store") {
			t.Errorf("error %v", err)
		}
	})
}

// A refresh token outlives a reload, and a restart of which only the folder is left.
func TestRefreshTokenOutlivesRestart(t *testing.T) {
	t.Parallel()
	folder := gatewaytest.Folder(t)
	var apps []*App
	start := func() *gateway {
		g := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
		app, err := fhirbase.Find[*App](g.Context)
		if err != nil {
			t.Fatal(err)
		}
		apps = append(apps, app)
		return g
	}
	before := start()
	request := gatewaytest.DemoRequest()
	request.Set("scope", "openid offline_access")
	tokens := before.exchange(gatewaytest.CodeForm(before.CodeOf(request)))
	reloaded := start()
	tokens = reloaded.exchange(refreshForm(tokens["refresh_token"]))
	for _, app := range apps { // both configurations go, as at the end of a process
		if err := app.stores.Durable.(*file.Store).Cleanup(); err != nil {
			t.Fatal(err)
		}
	}
	restarted := start()
	if tokens = restarted.exchange(refreshForm(tokens["refresh_token"])); tokens["access_token"] == nil {
		t.Errorf("after a restart: %v", tokens)
	}
	_ = apps[2].stores.Durable.(*file.Store).Cleanup()
}

func refreshForm(token any) url.Values {
	text, _ := token.(string)
	return url.Values{"grant_type": {"refresh_token"}, "client_id": {"demo-app"}, "refresh_token": {text}}
}

func (g *gateway) exchange(form url.Values) map[string]any {
	g.t.Helper()
	response := g.Post("/oauth2/token", form)
	answer := map[string]any{}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		g.t.Fatalf("token endpoint: %d %v, %v", response.StatusCode, answer, err)
	}
	return answer
}

// A refresh token used twice ends its access tokens at the guard, even those that it
// remembers.
func TestGuardRefusesRevokedFamily(t *testing.T) {
	t.Parallel()
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	g := exampleGateway(t, backend)
	request := gatewaytest.DemoRequest()
	request.Set("scope", "openid user/*.rs offline_access")
	first := g.exchange(gatewaytest.CodeForm(g.CodeOf(request)))
	second := g.exchange(refreshForm(first["refresh_token"]))
	third := g.exchange(refreshForm(second["refresh_token"]))
	tokens := []string{first["access_token"].(string), second["access_token"].(string), third["access_token"].(string)}
	passes := func(want int) {
		for i, token := range tokens {
			if r := g.Get("/fhir/R4/Patient/1", token); r.StatusCode != want {
				t.Errorf("access token %d: %d, want %d", i, r.StatusCode, want)
			}
		}
	}
	passes(http.StatusOK)
	if r := g.Post("/oauth2/token", refreshForm(first["refresh_token"])); r.StatusCode != http.StatusBadRequest {
		t.Errorf("used twice: %d", r.StatusCode)
	}
	passes(http.StatusUnauthorized)
}
