package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
)

// provisionApp loads the app alone, with its storage in a folder that it returns.
func provisionApp(t *testing.T, app *App) (*App, string, error) {
	t.Helper()
	root := t.TempDir()
	ctx, err := gatewaytest.Provision(t, &caddy.Config{
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
	hash := gatewaytest.WriteFile(t, "alice.hash", bcryptOfX+"\n")
	totp := gatewaytest.WriteFile(t, "alice.totp", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\n")
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
		{"a client like a user", App{Issuer: "https://x.example", Users: []User{user}, Clients: []Client{{ID: "alice"}}}, "client alice has the name of a user"},
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
	t.Parallel()
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
	t.Parallel()
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	for name, provision := range map[string]func(caddy.Context) error{
		"fhir_authorize": new(authorization.Authorize).Provision,
		"fhir_bearer":    new(bearer.Bearer).Provision,
	} {
		if err := provision(ctx); !errors.Is(err, fhirapp.ErrNone) {
			t.Errorf("%s without the app: %v", name, err)
		}
	}
	for name, provision := range map[string]func(caddy.Context) error{
		"fhir_expand":  (&expand.Expand{CoreOff: true}).Provision,
		"fhir_outcome": new(outcome.Outcome).Provision,
	} {
		if err := provision(ctx); err != nil {
			t.Errorf("%s without the app: %v", name, err)
		}
	}
}
