package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// provisionApp loads the app alone, with its storage in a folder that it returns.
func provisionApp(t *testing.T, app *App) (*App, string, error) {
	t.Helper()
	root := t.TempDir()
	ctx, err := provision(t, &caddy.Config{
		StorageRaw: caddyconfig.JSON(map[string]string{"module": "file_system", "root": root}, nil),
		AppsRaw:    caddy.ModuleMap{"fhir": caddyconfig.JSON(app, nil)},
	})
	if err != nil {
		return nil, root, err
	}
	provisioned, err := ctx.App("fhir")
	if err != nil {
		return nil, root, err
	}
	return provisioned.(*App), root, nil
}

const bcryptOfX = "$2a$04$1s/FpDlJ4PU6mb.fDx7GgeBiMXPSWBfJNzL6MbVB5FuYQHX0GPtMm"

func TestAppResolvesSecrets(t *testing.T) {
	t.Setenv("APP_SECRET", "s3cret")
	hash := writeFile(t, "alice.hash", bcryptOfX+"\n")
	totp := writeFile(t, "alice.totp", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\n")
	app, _, err := provisionApp(t, &App{
		Issuer:  "https://x.example",
		Users:   []User{{Name: "alice", PasswordHash: "{file." + hash + "}", TOTPSecret: "{file." + totp + "}"}},
		Clients: []Client{{ID: "c", Secret: "{env.APP_SECRET}", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if shown := string(caddyconfig.JSON(app, nil)); strings.Contains(shown, "s3cret") || strings.Contains(shown, "$2a$") || strings.Contains(shown, "GEZDG") {
		t.Errorf("the configuration shows a secret: %s", shown)
	}
	r := httptest.NewRequest(http.MethodPost, "https://x.example/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("c", "s3cret")
	w := httptest.NewRecorder()
	app.server.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("token endpoint: %d %s", w.Code, w.Body)
	}
}

func TestAppRefused(t *testing.T) {
	t.Setenv("EMPTY", "")
	t.Setenv("LINES", "\n\n")
	user := User{Name: "alice", PasswordHash: bcryptOfX}
	tests := []struct {
		name string
		app  App
		want string
	}{
		{"no issuer", App{}, "issuer"},
		{"a base without a slash", App{Issuer: "https://x.example", FHIRBase: "fhir"}, "fhir_base"},
		{"an empty secret", App{Issuer: "https://x.example", Clients: []Client{{ID: "c", Secret: "{env.EMPTY}"}}}, "{env.EMPTY}"},
		{"a secret of line ends alone", App{Issuer: "https://x.example", Clients: []Client{{ID: "c", Secret: "{env.LINES}"}}}, "is empty"},
		{"a secret file that is missing", App{Issuer: "https://x.example", Clients: []Client{{ID: "c", Secret: "{file./nowhere/x}"}}}, "/nowhere/x"},
		{"a password instead of its hash", App{Issuer: "https://x.example", Users: []User{{Name: "a", PasswordHash: "secret"}}}, "caddy hash-password"},
		{"a broken argon2id hash", App{Issuer: "https://x.example", Users: []User{{Name: "a", PasswordHash: "$argon2id$v=19$m=1"}}}, "password_hash"},
		{"a second factor whose key is empty", App{Issuer: "https://x.example", Users: []User{{Name: "a", PasswordHash: bcryptOfX, TOTPSecret: "{env.EMPTY}"}}}, "{env.EMPTY}"},
		{"a second factor whose key is short", App{Issuer: "https://x.example", Users: []User{{Name: "a", PasswordHash: bcryptOfX, TOTPSecret: "ABC"}}}, "totp_secret"},
		{"a lockout that hardly waits", App{Issuer: "https://x.example", Lockout: Lockout{MaxWait: 1}}, "max_wait"},
		{"a client like a user", App{Issuer: "https://x.example", Users: []User{user}, Clients: []Client{{ID: "alice"}}}, `"alice"`},
		{"a provider's secret that is empty", App{Issuer: "https://x.example", IdentityProviders: []IdentityProvider{{Key: "g", Kind: "google", ClientID: "x", ClientSecret: "{env.EMPTY}"}}}, "{env.EMPTY}"},
		{"a client of no provider", App{Issuer: "https://x.example", Clients: []Client{{ID: "c", IdentityProviders: []string{"nowhere"}}}}, "nowhere"},
		{"an unknown store", App{Issuer: "https://x.example", StoreRaw: json.RawMessage(`{"store":"clay"}`)}, "clay"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := provisionApp(t, &tt.app); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %s", err, tt.want)
			}
		})
	}
}

// `caddy validate` provisions, and must leave no trace in storage.
func TestProvisionWritesNothing(t *testing.T) {
	app, root, err := provisionApp(t, &App{Issuer: "https://x.example"})
	if err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(root); err != nil || len(files) > 0 {
		t.Errorf("storage has %v, %v", files, err)
	}
	if _, err := app.keys.JWKS(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "fhir", "keys", "x.example.json")); err != nil {
		t.Errorf("the keys are not in storage: %v", err)
	}
}

func TestHandlersNeedTheApp(t *testing.T) {
	ctx, err := provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	for name, provision := range map[string]func(caddy.Context) error{
		"fhir_authorize": new(Authorize).Provision,
		"fhir_bearer":    new(Bearer).Provision,
	} {
		if err := provision(ctx); !errors.Is(err, errNoApp) {
			t.Errorf("%s without the app: %v", name, err)
		}
	}
	for name, provision := range map[string]func(caddy.Context) error{
		"fhir_expand":  (&Expand{CoreOff: true}).Provision,
		"fhir_outcome": new(Outcome).Provision,
	} {
		if err := provision(ctx); err != nil {
			t.Errorf("%s without the app: %v", name, err)
		}
	}
}

// A code and a session outlive a reload: they lead on under the next
// configuration.
func TestReloadKeepsCodesAndSessions(t *testing.T) {
	keys := t.TempDir()
	before := newGatewayAt(t, exampleWith(t, "", ""), keys)
	code := before.code()
	after := newGatewayAt(t, exampleWith(t, "", ""), keys)
	after.Cookies = before.Cookies
	response := after.post("/oauth2/token", codeForm(code))
	if response.StatusCode != http.StatusOK {
		t.Errorf("code after a reload: %d %s", response.StatusCode, read(t, response))
	}
	again, err := after.get("/oauth2/authorize?"+demoRequest().Encode(), "").Location()
	if err != nil || again.Query().Get("code") == "" {
		t.Errorf("session after a reload: %v %v", again, err)
	}
}

func TestMemoryStoreIsPooled(t *testing.T) {
	first, second := &MemoryStore{}, &MemoryStore{MaxEntries: 10}
	for _, m := range []*MemoryStore{first, second} {
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
	}
	if first.Store != second.Store {
		t.Error("two configurations have two stores")
	}
	before, _ := memoryStores.References(memoryStoreKey)
	failed := new(MemoryStore) // Provision never ran
	for _, m := range []*MemoryStore{first, second, failed} {
		if err := m.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	if after, _ := memoryStores.References(memoryStoreKey); after != before-2 {
		t.Errorf("%d users of the store before the cleanup, %d after", before, after)
	}
}

// A configuration that does not start leaves the running one's store as it is.
func TestStoreBoundWaitsForStart(t *testing.T) {
	running, refused := &MemoryStore{}, &MemoryStore{MaxEntries: 1}
	for _, m := range []*MemoryStore{running, refused} {
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = running.Cleanup() })
	for _, key := range []string{"a", "b", "c"} {
		if err := running.Put(t.Context(), key, nil, time.Minute); err != nil {
			t.Errorf("after a configuration that did not start: %v", err)
		}
	}
	if err := refused.Cleanup(); err != nil {
		t.Error(err)
	}
}

// Plain HTTP is refused, unless a proxy that trusted_proxies names says https.
func TestHTTPS(t *testing.T) {
	const global = "admin {$CADDY_ADMIN:localhost:2019}\n"
	trusting := strings.Replace(exampleWith(t, global, global+"\tservers {\n\t\ttrusted_proxies static 192.0.2.0/24\n\t}\n"), "https://localhost:8443 {", "http://localhost:8443 {", 1)
	g := newGateway(t, trusting)
	tests := []struct {
		name, from, proto string
		want              int
	}{
		{"plain", "192.0.2.1:1", "", http.StatusBadRequest},
		{"a trusted proxy says http", "192.0.2.1:1", "http", http.StatusBadRequest},
		{"a trusted proxy says https", "192.0.2.1:1", "https", http.StatusOK},
		{"somebody says https", "198.51.100.1:1", "https", http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/.well-known/openid-configuration", nil)
			r.RemoteAddr, r.Host = tt.from, "localhost:8443"
			r.Header.Set("X-Forwarded-Proto", tt.proto)
			w := httptest.NewRecorder()
			g.server.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
		})
	}
}

func TestUnknownPathIs404(t *testing.T) {
	g := exampleGateway(t, nil)
	for _, path := range []string{"/index.html", "/oauth2/nothing", "/oauth2/authorize/", "/fhir/R4x"} {
		if r := g.get(path, ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func demoRequest() url.Values {
	return url.Values{"response_type": {"code"}, "client_id": {"demo-app"}, "redirect_uri": {demoCallback}, "scope": {"openid user/*.rs"}}
}

// A kind that is none is not taken for another one in a JSON configuration either.
func TestUnknownKindOfProvider(t *testing.T) {
	for kind, ok := range map[string]bool{"": true, "oidc": true, "google": true, "Google": false, "saml": false} {
		_, _, err := provisionApp(t, &App{
			Issuer:            "https://x.example",
			IdentityProviders: []IdentityProvider{{Key: "h", Kind: kind, Issuer: "https://h.example", ClientID: "c"}},
		})
		if (err == nil) != ok {
			t.Errorf("%q: %v", kind, err)
		}
	}
}
