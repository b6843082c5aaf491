package fhirapp

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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
)

// provisionApp provisions only the app. It returns the app and the folder of its storage.
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
		Clients: []Client{{Settings: client.Settings{ID: "c", Secret: "{env.APP_SECRET}", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if encoded := string(caddyconfig.JSON(app, nil)); strings.Contains(encoded, "s3cret") || strings.Contains(encoded, "$2a$") || strings.Contains(encoded, "GEZDG") {
		t.Errorf("the configuration shows a secret: %s", encoded)
	}
	r := httptest.NewRequest(http.MethodPost, "https://x.example/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("c", "s3cret")
	w := httptest.NewRecorder()
	app.Server().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("token endpoint: status %d: %s", w.Code, w.Body)
	}
}

// JSON configurations are rejected for the same reasons as Caddyfiles and for errors that only Provision can detect.
func TestAppRefused(t *testing.T) {
	newTestServer(t)
	t.Setenv("EMPTY", "")
	t.Setenv("LINES", "\n\n")
	t.Setenv("SHORT_KEY", "c2hvcnQ=")
	provider := func(kind string) []IdentityProvider {
		return []IdentityProvider{{Kind: kind, IdentityProvider: people.IdentityProvider{Key: "h", Issuer: "https://h.example", ClientID: "c"}}}
	}
	entra := func(path string, tenants ...string) []IdentityProvider {
		idp := people.IdentityProvider{Key: "h", Issuer: "https://login.microsoftonline.com/" + path + "/v2.0", ClientID: "c", Tenants: tenants}
		return []IdentityProvider{{Kind: "entra", IdentityProvider: idp}}
	}
	user := User{Name: "alice", PasswordHash: bcryptOfX}
	tests := []struct {
		name string
		app  App
		want string // "" if the configuration is accepted
	}{
		{"no issuer", App{}, "issuer"},
		{"a base without a slash", App{FHIRBase: "fhir"}, "fhir_base"},
		{"an empty secret", App{Clients: []Client{{Settings: client.Settings{ID: "c", Secret: "{env.EMPTY}"}}}}, "{env.EMPTY}"},
		{"a secret of line ends alone", App{Clients: []Client{{Settings: client.Settings{ID: "c", Secret: "{env.LINES}"}}}}, "is empty"},
		{"a secret file that is missing", App{Clients: []Client{{Settings: client.Settings{ID: "c", Secret: "{file./nowhere/x}"}}}}, "/nowhere/x"},
		{"a password instead of its hash", App{Users: []User{{Name: "a", PasswordHash: "secret"}}}, "caddy hash-password"},
		{"a broken argon2id hash", App{Users: []User{{Name: "a", PasswordHash: "$argon2id$v=19$m=1"}}}, "password_hash"},
		{"second factor with an empty key", App{Users: []User{{Name: "a", PasswordHash: bcryptOfX, TOTPSecret: "{env.EMPTY}"}}}, "{env.EMPTY}"},
		{"second factor with a short key", App{Users: []User{{Name: "a", PasswordHash: bcryptOfX, TOTPSecret: "ABC"}}}, "totp_secret"},
		{"a client like a user", App{Users: []User{user}, Clients: []Client{{Settings: client.Settings{ID: "alice"}}}}, "client_id alice is already the name of a user"},
		{"a provider's secret that is empty", App{IdentityProviders: []IdentityProvider{{Kind: "google", IdentityProvider: people.IdentityProvider{Key: "g", ClientID: "x", ClientSecret: "{env.EMPTY}"}}}}, "{env.EMPTY}"},
		{"a client of no provider", App{Clients: []Client{{Settings: client.Settings{ID: "c", IdentityProviders: []string{"nowhere"}}}}}, "nowhere"},
		{"an unknown store", App{StoreRaw: json.RawMessage(`{"store":"clay"}`)}, "clay"},
		{"a store at an empty placeholder", App{StoreRaw: json.RawMessage(`{"store":"file","path":"{env.EMPTY}"}`)}, "{env.EMPTY}"},
		{"a store with an unknown field", App{StoreRaw: json.RawMessage(`{"store":"file","paht":"x"}`)}, "paht"},
		{"a store key that is too short", App{StoreKeys: []string{"{env.SHORT_KEY}"}}, "openssl rand -base64 32"},
		{"a store key that is not set", App{StoreKeys: []string{"{env.NO_SUCH_KEY}"}}, "store_key: {env.NO_SUCH_KEY}: the environment variable is not set"},
		{"a previous store key that is too short", App{StoreKeys: []string{storeKey, "short"}}, "openssl rand -base64 32"},
		{"store key for a memory store", App{StoreKeys: []string{storeKey}, StoreRaw: json.RawMessage(`{"store":"memory"}`)}, "lost on a restart"},
		{"a lag without a shared store", App{RevocationMaxLag: caddy.Duration(time.Minute)}, "revocation_max_lag applies only to a shared store"},
		{"a lag that is too short", App{RevocationMaxLag: caddy.Duration(time.Second), StoreRaw: onServer(t, "")}, "between 2s and 1h0m0s"},
		{"a lag that is too long", App{RevocationMaxLag: caddy.Duration(2 * time.Hour), StoreRaw: onServer(t, "")}, "between 2s and 1h0m0s"},
		{"a lag that is off", App{RevocationMaxLag: -1, StoreRaw: onServer(t, "")}, ""},
		{"a lag that is right", App{RevocationMaxLag: caddy.Duration(10 * time.Second), StoreRaw: onServer(t, "")}, ""},
		{"a provider of the default kind", App{IdentityProviders: provider("")}, ""},
		{"a provider of OpenID Connect", App{IdentityProviders: provider("oidc")}, ""},
		{"Google", App{IdentityProviders: provider("google")}, ""},
		{"organizations without tenants", App{IdentityProviders: entra("organizations")}, "requires the option tenants"},
		{"common without tenants", App{IdentityProviders: entra("common")}, "requires the option tenants"},
		{"a tenant without tenants", App{IdentityProviders: entra(tenantA)}, ""},
		{"common with tenants", App{IdentityProviders: entra("common", tenantA)}, ""},
		{"a class that no provider can show", App{IdentityProviders: []IdentityProvider{{Kind: "google", IdentityProvider: people.IdentityProvider{Key: "g", ClientID: "x", ACRMap: map[string]string{"2": "phr"}}}}}, "use sfa or mfa"},
		{"Google by another name", App{IdentityProviders: provider("Google")}, `invalid value "Google": use one of`},
		{"a provider of an unknown kind", App{IdentityProviders: provider("saml")}, `invalid value "saml": use one of`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "no issuer" {
				tt.app.Issuer = "https://x.example"
			}
			_, _, err := provisionApp(t, &tt.app)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %q", err, tt.want)
			}
		})
	}
}

// Provisioning, as performed by `caddy validate`, does not write to storage.
func TestProvisionWritesNothing(t *testing.T) {
	t.Parallel()
	app, root, err := provisionApp(t, &App{Issuer: "https://x.example", IdentityProviders: []IdentityProvider{{
		Kind: "oidc", IdentityProvider: people.IdentityProvider{Key: "h", Issuer: "https://h.example", ClientID: "c"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.ctx.GetMetricsRegistry().Gather(); err != nil { // collecting metrics must not write to storage either
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
		if err := provision(ctx); !errors.Is(err, fhirbase.ErrNoApp) {
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

// The error for a missing secret contains the reason and the variable or file.
func TestResolveSecret(t *testing.T) {
	t.Setenv("SET", "s3cret")
	t.Setenv("EMPTY", "")
	folder := t.TempDir()
	full, empty := gatewaytest.WriteFile(t, "full", "s3cret\r\n"), gatewaytest.WriteFile(t, "empty", "\n")
	tests := []struct{ name, secret, want, fault string }{
		{"literal", "s3cret", "s3cret", ""},
		{"none", "", "", ""},
		{"variable", "{env.SET}", "s3cret", ""},
		{"variable within", "a-{env.SET}-b", "a-s3cret-b", ""},
		{"file", "{file." + full + "}", "s3cret", ""},
		{"variable that is not set", "{env.NONESUCH}", "", "{env.NONESUCH}: the environment variable is not set"},
		{"variable that is empty", "{env.EMPTY}", "", "{env.EMPTY}: the environment variable is empty"},
		{"second of two", "{env.SET}{env.NONESUCH}", "", "{env.NONESUCH}: the environment variable is not set"},
		{"file that is not there", "{file." + folder + "/nonesuch}", "", "nonesuch}: open " + folder + "/nonesuch: no such file or directory"},
		{"file that is a folder", "{file." + folder + "}", "", "is a directory"},
		{"file that is empty", "{file." + empty + "}", "", "the file is empty"},
		{"unknown placeholder", "{secret}", "", "unrecognized placeholder {secret}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := option.ResolveSecret("secret", tt.secret)
			if tt.fault == "" && (err != nil || got != tt.want) {
				t.Errorf("got %q, %v", got, err)
			}
			if tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("error %v, want one with %q", err, tt.fault)
			}
		})
	}
}

// Placeholder syntax in text from clients is never expanded, neither in responses nor in later handlers.
func TestPlaceholdersOfClientsStayText(t *testing.T) {
	t.Setenv("REGRESSION_SECRET", "expanded-secret")
	const placeholder = "{env.REGRESSION_SECRET}{file./etc/hostname}{http.request.host}"
	const openID = "openid user/*.rs"
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.request.header.X-Request-Id}"
`))
	state := g.Get("/oauth2/authorize?"+url.Values{
		"client_id": {"demo-app"}, "redirect_uri": {gatewaytest.DemoCallback}, "scope": {"nonsense"}, "state": {placeholder},
	}.Encode(), "").Header.Get("Location")
	if u, err := url.Parse(state); err != nil || u.Query().Get("state") != placeholder {
		t.Errorf("state: %s", state)
	}
	page := gatewaytest.ReadBody(t, g.Get(g.Get("/oauth2/authorize?"+gatewaytest.DemoRequest().Encode()+"&login_hint="+url.QueryEscape(placeholder), "").Header.Get("Location"), ""))
	if name := authorizetest.ReadForm(page).Fields.Get("username"); name != placeholder {
		t.Errorf("sign-in page with %q: %s", name, page)
	}
	if got, want := gatewaytest.ReadBody(t, g.Get("/fhir/R4/Patient", g.Token(), "X-Request-Id", placeholder)), "alice demo-app "+openID+" "+placeholder; got != want {
		t.Errorf("for the next handler: %q, want %q", got, want)
	}
	if got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/Patient?x="+url.QueryEscape(placeholder), placeholder)); strings.Contains(got, "expanded") {
		t.Errorf("outcome: %s", got)
	}
}

// Plain HTTP is rejected unless a proxy in trusted_proxies forwards the scheme https.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	trusting := strings.Replace(gatewaytest.ExampleText(t, gatewaytest.ServersBlock, gatewaytest.ServersBlock+"\t\ttrusted_proxies static 192.0.2.0/24\n"), "https://localhost:8443 {", "http://localhost:8443 {", 1)
	g := newGateway(t, trusting)
	tests := []struct {
		name, from, proto string
		want              int
	}{
		{"plain", "192.0.2.1:1", "", http.StatusBadRequest},
		{"http from a trusted proxy", "192.0.2.1:1", "http", http.StatusBadRequest},
		{"https from a trusted proxy", "192.0.2.1:1", "https", http.StatusOK},
		{"https from an untrusted address", "198.51.100.1:1", "https", http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/.well-known/openid-configuration", nil)
			r.RemoteAddr, r.Host = tt.from, "localhost:8443"
			r.Header.Set("X-Forwarded-Proto", tt.proto)
			w := httptest.NewRecorder()
			g.Server.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
		})
	}
}

func TestUnknownPathIs404(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	for _, path := range []string{"/index.html", "/oauth2/nothing", "/oauth2/authorize/", "/fhir/R4x"} {
		if r := g.Get(path, ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}
