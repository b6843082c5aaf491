package client_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// RFC 7592 §2.2: an update replaces, and what it leaves out is as if it had never been
// there; §3: the answer is that of a registration. The secret stays.
func TestRegistrationIsChanged(t *testing.T) {
	t.Parallel()
	var trail servertest.AuditTrail
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		servertest.Registering(new(servertest.ClientStorage))(c)
		c.Audit = trail.Record
	}))
	_, c := servertest.Register(b, servertest.ClientMetadata(map[string]any{"post_logout_redirect_uris": []string{servertest.Callback}, "require_pushed_authorization_requests": true}), servertest.InitialAccessToken)
	trail.Take()
	const elsewhere = "https://app.example.org/elsewhere"
	r, got := servertest.UpdateClient(b, c, map[string]any{"client_id": c.ID, "client_secret": c.Secret, "redirect_uris": []string{elsewhere}})
	if r.StatusCode != http.StatusOK || got.ID != c.ID || got.URI != c.URI || got.AccessToken != c.AccessToken || got.IssuedAt != c.IssuedAt ||
		got.Secret != "" || got.Expires == nil || got.Name != "" || got.Scope != "openid email phone profile user/*.rs demo.read" ||
		got.Method != "client_secret_basic" || len(got.Redirects) != 1 || got.Redirects[0] != elsewhere || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %+v", r.StatusCode, got)
	}
	if want := "registration success user= client=" + c.ID + " scope="; trail.Take() != want {
		t.Errorf("events %q", trail)
	}
	read := servertest.ManageClient(b, http.MethodGet, c.URI, c.AccessToken)
	left := servertest.Decode[map[string]any](t, read)
	if left["post_logout_redirect_uris"] != nil || left["require_pushed_authorization_requests"] != nil || !reflect.DeepEqual(left["redirect_uris"], []any{elsewhere}) {
		t.Errorf("read again: %v", left)
	}
	q := servertest.Request(servertest.PKCE())
	q.Set("client_id", c.ID)
	if r := b.Authorize(q); r.StatusCode != http.StatusBadRequest {
		t.Errorf("the old redirect URI: %d", r.StatusCode)
	}
	q.Set("redirect_uri", elsewhere)
	if u := servertest.Location(t, b.Authorize(q)); u.Path != "/oauth2/login" {
		t.Errorf("the new redirect URI: %s", u)
	}
	if got := bySecret(b, c.ID, c.Secret); got != "invalid_grant" {
		t.Errorf("the secret: %s", got)
	}
}

// bySecret is what the token endpoint says to a secret with a code that is none.
func bySecret(b *servertest.Browser, id, secret string) string {
	b.T.Helper()
	return b.RequestTokens(servertest.CodeForm("x", url.Values{"client_id": {id}, "client_secret": {secret}})).Error
}

// A client that proves who it is in another way from now on does so in no other.
func TestRegisteredMethodIsChanged(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.Registering(new(servertest.ClientStorage))))
	_, c := servertest.Register(b, servertest.ClientMetadata(nil), servertest.InitialAccessToken)
	become := func(m map[string]any) servertest.RegistrationResponse {
		m["client_id"] = c.ID
		r, got := servertest.UpdateClient(b, c, m)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%d %+v", r.StatusCode, got)
		}
		return got
	}
	if got := become(withKeys(nil)); got.Secret != "" || got.Expires != nil || got.JWKS == nil {
		t.Errorf("with keys: %+v", got)
	}
	if old, by := bySecret(b, c.ID, c.Secret), servertest.TryAssertion(b, c.ID, jose.ES384); old != "invalid_client" || by != "invalid_grant" {
		t.Errorf("with keys: by secret %s, by key %s", old, by)
	}
	become(withKeys(map[string]any{"jwks": json.RawMessage(servertest.PublicKeys(jose.RS256))}))
	if old, by := servertest.TryAssertion(b, c.ID, jose.ES384), servertest.TryAssertion(b, c.ID, jose.RS256); old != "invalid_client" || by != "invalid_grant" {
		t.Errorf("with other keys: by the old %s, by the new %s", old, by)
	}
	got := become(servertest.ClientMetadata(nil))
	if len(got.Secret) != 43 || got.Secret == c.Secret || got.JWKS != nil {
		t.Errorf("with a secret: %+v", got)
	}
	if old, by, key := bySecret(b, c.ID, c.Secret), bySecret(b, c.ID, got.Secret), servertest.TryAssertion(b, c.ID, jose.RS256); old != "invalid_client" || by != "invalid_grant" || key != "invalid_client" {
		t.Errorf("with a secret: by the old %s, by the new %s, by key %s", old, by, key)
	}
	if got := become(servertest.ClientMetadata(map[string]any{"token_endpoint_auth_method": "none"})); got.Secret != "" || got.Expires != nil {
		t.Errorf("public: %+v", got)
	}
	if old, by := bySecret(b, c.ID, got.Secret), bySecret(b, c.ID, ""); old != "invalid_client" || by != "invalid_grant" {
		t.Errorf("public: by secret %s, by nothing %s", old, by)
	}
}

func TestRegistrationChangeRefused(t *testing.T) {
	t.Parallel()
	storage := new(servertest.ClientStorage)
	b := servertest.NewBrowser(t, servertest.New(t, servertest.Registering(storage)))
	_, c := servertest.Register(b, servertest.ClientMetadata(nil), servertest.InitialAccessToken)
	_, public := servertest.Register(b, servertest.ClientMetadata(map[string]any{"token_endpoint_auth_method": "none"}), servertest.InitialAccessToken)
	before := string(storage.Files["fhir/clients/x/"+c.ID+".json"])
	for name, tt := range map[string]struct {
		client servertest.RegistrationResponse
		change map[string]any
		want   string
	}{
		"no client_id":            {c, nil, "invalid_client_metadata"},
		"another's client_id":     {c, map[string]any{"client_id": public.ID}, "invalid_client_metadata"},
		"a secret of its own":     {c, map[string]any{"client_id": c.ID, "client_secret": "chosen"}, "invalid_client_metadata"},
		"a secret where is none":  {public, map[string]any{"client_id": public.ID, "client_secret": "chosen"}, "invalid_client_metadata"},
		"a scope beyond the list": {c, map[string]any{"client_id": c.ID, "scope": "user/*.cruds"}, "invalid_client_metadata"},
		"no redirect URI":         {c, map[string]any{"client_id": c.ID, "redirect_uris": nil}, "invalid_redirect_uri"},
		"keys that are missing":   {c, map[string]any{"client_id": c.ID, "token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"},
	} {
		if r, got := servertest.UpdateClient(b, tt.client, servertest.ClientMetadata(tt.change)); r.StatusCode != http.StatusBadRequest || got.Error != tt.want {
			t.Errorf("%s: %d %+v", name, r.StatusCode, got)
		}
	}
	if after := string(storage.Files["fhir/clients/x/"+c.ID+".json"]); after != before {
		t.Errorf("changed to %s", after)
	}
	delete(storage.Files, "fhir/clients/x/"+c.ID+".json") // by another gateway, a moment ago
	if r, got := servertest.UpdateClient(b, c, servertest.ClientMetadata(map[string]any{"client_id": c.ID})); r.StatusCode != http.StatusUnauthorized || got.Error != "invalid_token" || len(storage.Files) != 1 {
		t.Errorf("a client that is gone: %d %+v", r.StatusCode, got)
	}
}

// The operator is told which file is damaged, where a client is changed whose copy here
// is still whole.
func TestChangeOfUnreadableRegistration(t *testing.T) {
	t.Parallel()
	storage, log := new(servertest.ClientStorage), new(strings.Builder)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		servertest.Registering(storage)(c)
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}))
	_, c := servertest.Register(b, servertest.ClientMetadata(nil), servertest.InitialAccessToken)
	file := "fhir/clients/x/" + c.ID + ".json"
	storage.Files[file] = []byte("{")
	r, _ := servertest.UpdateClient(b, c, servertest.ClientMetadata(map[string]any{"client_id": c.ID}))
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(log.String(), file+" in storage: ") {
		t.Errorf("%d, log %q", r.StatusCode, log)
	}
}

// Discovery names what clients that register may have, too.
func TestDiscoveryOfRegisteredClients(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		servertest.Registering(new(servertest.ClientStorage))(c)
		c.Registration.Scopes = append(c.Registration.Scopes, "offline_access")
	}))
	type lists struct {
		Grants []string `json:"grant_types_supported"`
		Scopes []string `json:"scopes_supported"`
	}
	if m := servertest.Decode[lists](t, b.Get("/.well-known/openid-configuration")); !slices.Contains(m.Grants, "refresh_token") || !slices.Contains(m.Scopes, "offline_access") {
		t.Errorf("%v", m)
	}
	if _, c := servertest.Register(b, servertest.ClientMetadata(map[string]any{"scope": "openid offline_access"}), servertest.InitialAccessToken); strings.Join(c.GrantTypes, " ") != "authorization_code refresh_token" {
		t.Errorf("%v", c.GrantTypes)
	}
}
