package authorize_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// What each flow asks of a store that gateways share, as docs/evidence/replicas.md says it.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/evidence/replicas.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range roundTrips {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 1, roundTripConfig)
				do := tt.prepare(t, servertest.NewBrowser(t, g), g)
				row := fmt.Sprintf("| %s | %d |", tt.name, g.roundTrips(do))
				if !strings.Contains(string(document), row) {
					t.Errorf("docs/evidence/replicas.md does not have the row\n%s", row)
				}
			})
		})
	}
}

func roundTripConfig(c *authorize.Config) {
	servertest.ResourceServer(c)
	servertest.EveryFlow(c)
	c.Clients = append(c.Clients, client.Client{
		ID: "careful", PKCE: client.PKCEOptional, RedirectURIs: []string{servertest.Callback}, Consent: client.ConsentRequired,
		Scopes: []string{"offline_access"},
	}, client.Client{
		ID: "backend", Scopes: []string{"system/*.rs"}, GrantTypes: []string{"client_credentials"}, JWKS: servertest.PublicKeys(jose.ES256),
	})
}

// roundTrips are flows: prepare leads to each, and returns what is counted.
var roundTrips = []struct {
	name    string
	prepare func(*testing.T, *servertest.Browser, *gateways) func()
}{
	{"authorization request, to the sign-in page", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		return func() { b.Authorize(servertest.Request(nil)) }
	}},
	{"the sign-in page", func(t *testing.T, b *servertest.Browser, _ *gateways) func() {
		page := servertest.Location(t, b.Authorize(servertest.Request(nil)))
		return func() { b.Get(page.String()) }
	}},
	{"a password, with the code", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		_, sealed := b.OpenForm(b.Authorize(servertest.Request(nil)))
		return func() { b.Post("/oauth2/login", typed(sealed, "alice", "right")) }
	}},
	{"a code in a session", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		b.Answer(servertest.Request(nil))
		return func() { b.CodeOfSession(nil) }
	}},
	{"a code exchanged", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		code := b.Code(nil)
		return func() { b.RequestTokens(servertest.CodeForm(code, nil)) }
	}},
	{"a code exchanged, with a refresh token", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		code := b.Code(servertest.OfflineAccess(nil))
		return func() { b.RequestTokens(servertest.CodeForm(code, nil)) }
	}},
	{"a code exchanged, of a client that requires consent", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		q := servertest.Request(url.Values{"client_id": {"careful"}, "scope": {"openid offline_access"}})
		code := b.Allow(b.SignIn(q, "alice", "right"), "*").Query().Get("code")
		return func() { b.RequestTokens(servertest.CodeForm(code, url.Values{"client_id": {"careful"}})) }
	}},
	{"a refresh", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		refresh := b.Tokens(servertest.OfflineAccess(nil)).Refresh
		return func() { b.Refresh(refresh, nil) }
	}},
	{"a refresh, `online_access`", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		refresh := b.Tokens(url.Values{"scope": {"openid online_access"}}).Refresh
		return func() { b.Refresh(refresh, nil) }
	}},
	{"client credentials, by a key", func(t *testing.T, b *servertest.Browser, _ *gateways) func() {
		form := servertest.AssertionForm(servertest.Assertion(t, jose.ES256, nil, nil), nil)
		return func() { b.RequestTokens(form) }
	}},
	{"userinfo", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		access := b.Tokens(nil).AccessToken
		return func() { b.Userinfo(access) }
	}},
	{"introspection, by an access token", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		access := b.Tokens(nil).AccessToken
		return func() {
			r := servertest.Secure(servertest.PostRequest("/oauth2/introspect", url.Values{"token": {access}}))
			r.Header.Set("Authorization", "Bearer "+access)
			b.Server.ServeHTTP(httptest.NewRecorder(), r)
		}
	}},
	{"what the guard asks of an access token", func(t *testing.T, b *servertest.Browser, g *gateways) func() {
		claims := b.Claims(b.Tokens(url.Values{"scope": {"openid online_access"}}).AccessToken)
		text := func(name string) string { value, _ := claims[name].(string); return value }
		asked := token.AccessToken{
			ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"), Session: text("sid"),
			CredentialHash: text("credential_hash"),
		}
		return func() {
			revoked, err1 := g.servers[0].Revoked(t.Context(), asked.ID)
			holder, err2 := g.servers[0].Holder(t.Context(), asked)
			if revoked || holder == nil || err1 != nil || err2 != nil {
				t.Error(revoked, holder, err1, err2)
			}
		}
	}},
	{"a refresh token revoked", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		form := url.Values{"client_id": {"app"}, "token": {b.Tokens(servertest.OfflineAccess(nil)).Refresh}}
		return func() { b.Post("/oauth2/revoke", form) }
	}},
	{"an access token revoked", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		form := url.Values{"client_id": {"app"}, "token": {b.Tokens(nil).AccessToken}}
		return func() { b.Post("/oauth2/revoke", form) }
	}},
	{"a pushed request", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		return func() { servertest.Push(b, servertest.Request(nil)) }
	}},
	{"a code in a session, of a pushed request", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		b.Answer(servertest.Request(nil))
		_, answer := servertest.Push(b, servertest.Request(nil))
		return func() { b.Authorize(servertest.Pushed(answer.RequestURI)) }
	}},
	{"signing out by `id_token_hint`", func(_ *testing.T, b *servertest.Browser, _ *gateways) func() {
		hint := b.Tokens(nil).IDToken
		return func() { b.Get("/oauth2/logout?" + url.Values{"id_token_hint": {hint}}.Encode()) }
	}},
}
