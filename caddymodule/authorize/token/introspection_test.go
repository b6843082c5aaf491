package token_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func TestIntrospection(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithResourceServer))
	tokens := b.Tokens(url.Values{"scope": {"openid fhirUser user/*.rs"}})
	tests := []struct {
		name, token, client, secret string
		active                      bool
	}{
		{"a resource server asks", tokens.AccessToken, "fhir-server", "rs", true},
		{"a client asks of another's", tokens.AccessToken, "service", "hush", false},
		{"an ID token", tokens.IDToken, "fhir-server", "rs", false},
		{"cut short", tokens.AccessToken[:len(tokens.AccessToken)-1], "fhir-server", "rs", false},
		{"no token of ours", "invalid_token_value", "fhir-server", "rs", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := authorizetest.SendTokenForm(b, "/oauth2/introspect", tt.token, tt.client, tt.secret)
			got := authorizetest.Decode[map[string]any](t, r)
			if r.StatusCode != http.StatusOK || got["active"] != tt.active || !tt.active && len(got) != 1 {
				t.Fatalf("status %d: %v", r.StatusCode, got)
			}
			if !tt.active {
				return
			}
			claims := b.Claims(tt.token)
			for _, name := range []string{"iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope", "fhirUser", "auth_time"} {
				if got[name] != claims[name] || got[name] == nil {
					t.Errorf("%s = %v, in the token %v", name, got[name], claims[name])
				}
			}
		})
	}
}

func TestIntrospectionOfOwnToken(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	token := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken
	if got := authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", token, "service", "hush")); got["active"] != true {
		t.Errorf("%v", got)
	}
}

func TestIntrospectionRefused(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithResourceServer))
	for name, tt := range map[string]struct {
		client, secret, token string
		status                int
	}{
		"a public client":   {"app", "", "x", 401},
		"a wrong secret":    {"fhir-server", "wrong", "x", 401},
		"an unknown client": {"nobody", "x", "x", 401},
		"no token":          {"fhir-server", "rs", "", 400},
		"no client":         {"", "", "x", 401},
	} {
		if r := authorizetest.SendTokenForm(b, "/oauth2/introspect", tt.token, tt.client, tt.secret); r.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d", name, r.StatusCode, tt.status)
		}
	}
}

func TestExpiredTokenIsInactive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithResourceServer))
		token := b.Tokens(nil).AccessToken
		time.Sleep(time.Hour + time.Second)
		if got := authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", token, "fhir-server", "rs")); got["active"] != false {
			t.Errorf("%v", got)
		}
	})
}

// A refresh token is active while a refresh would succeed.
func TestIntrospectionOfRefreshToken(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); authorizetest.WithResourceServer(c) })
	b := authorizetest.NewBrowser(t, server)
	first := b.Tokens(authorizetest.WithOfflineAccess(nil))
	ask := func(token, client, secret string) map[string]any {
		r := authorizetest.SendTokenForm(b, "/oauth2/introspect", token, client, secret)
		got := authorizetest.Decode[map[string]any](t, r)
		if r.StatusCode != http.StatusOK || got["active"] != true && len(got) != 1 {
			t.Fatalf("%d %v", r.StatusCode, got)
		}
		return got
	}
	got := ask(first.RefreshToken, "fhir-server", "rs")
	want := map[string]any{"active": true, "iss": authorizetest.Issuer, "sub": "alice", "client_id": "app", "scope": first.Scope}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
	if _, typed := got["token_type"]; typed || got["exp"].(float64)-got["iat"].(float64) != (90*24*time.Hour).Seconds() {
		t.Errorf("%v", got)
	}
	second := b.Refresh(first.RefreshToken, nil)
	for name, inactive := range map[string]map[string]any{
		"a client asks of another's": ask(second.RefreshToken, "service", "hush"),
		"one that was followed":      ask(first.RefreshToken, "fhir-server", "rs"),
		"cut short":                  ask(second.RefreshToken[:60], "fhir-server", "rs"),
	} {
		if inactive["active"] != false {
			t.Errorf("%s: %v", name, inactive)
		}
	}
	if got := ask(second.RefreshToken, "fhir-server", "rs"); got["active"] != true {
		t.Errorf("after introspection: %v", got)
	}
	authorizetest.SendTokenForm(b, "/oauth2/revoke", second.RefreshToken, "app", "")
	if got := ask(second.RefreshToken, "fhir-server", "rs"); got["active"] != false {
		t.Errorf("revoked: %v", got)
	}
	online := authorizetest.NewBrowser(t, server).Tokens(url.Values{"scope": {"openid online_access"}})
	if _, err := server.EndSessions(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if got := ask(online.RefreshToken, "fhir-server", "rs"); got["active"] != false {
		t.Errorf("of a session that is over: %v", got)
	}
}

// An access token also authenticates the introspecting client (SMART App Launch 2.2 requirements 282 and 283).
func TestIntrospectionByBearer(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.WithResourceServer(c)
		c.Clients[5].GrantTypes, c.Clients[5].Scopes = []string{"client_credentials"}, []string{"system/*.rs"}
	}))
	clientToken := func(id, secret string) string {
		r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
		r.SetBasicAuth(id, secret)
		return authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken
	}
	person := b.Tokens(nil).AccessToken
	all, other := clientToken("fhir-server", "rs"), clientToken("service", "hush")
	tests := []struct {
		name, bearer, token string
		status              int
		active              bool
	}{
		{"a client that may ask of all", all, person, 200, true},
		{"the token's own client", person, person, 200, true},
		{"another client", other, person, 200, false},
		{"of no token of ours", all, "invalid_token_value", 200, false},
		{"with no token of ours", "invalid_token_value", person, 401, false},
		{"with nothing", "", person, 401, false},
		{"of nothing", all, "", 400, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := authorizetest.PostRequest("/oauth2/introspect", url.Values{"token": {tt.token}})
			r.Header.Set("Authorization", "Bearer "+tt.bearer)
			response := b.Send(r)
			got := authorizetest.Decode[map[string]any](t, response)
			if response.StatusCode != tt.status || tt.status == 200 && (got["active"] != tt.active || !tt.active && len(got) != 1) {
				t.Errorf("%d %v", response.StatusCode, got)
			}
			if challenge := response.Header.Get("WWW-Authenticate"); tt.status == 401 && !strings.HasPrefix(challenge, "Bearer ") {
				t.Errorf("WWW-Authenticate %q", challenge)
			}
		})
	}
	authorizetest.SendTokenForm(b, "/oauth2/revoke", other, "service", "hush")
	r := authorizetest.PostRequest("/oauth2/introspect", url.Values{"token": {other}})
	r.Header.Set("Authorization", "Bearer "+other)
	if response := b.Send(r); response.StatusCode != 401 {
		t.Errorf("with a revoked token: %d", response.StatusCode)
	}
}

// Requests without client identification are rejected with invalid_client (RFC 7009 §2.2.1, RFC 7662 §2.3,
// RFC 9126 §2.3, each citing RFC 6749 §5.2). Only the token endpoint identifies clients by refresh token.
func TestUnidentifiedClient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	refresh := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
	for _, path := range []string{"/oauth2/revoke", "/oauth2/introspect", "/oauth2/par"} {
		for name, form := range map[string]url.Values{
			"nothing":                   {},
			"a token":                   {"token": {refresh}},
			"a made-up refresh token":   {"token": {refresh}, "grant_type": {"refresh_token"}, "refresh_token": {"x"}},
			"a good refresh token":      {"token": {refresh}, "grant_type": {"refresh_token"}, "refresh_token": {refresh}},
			"grant_type and no refresh": {"token": {refresh}, "grant_type": {"refresh_token"}},
		} {
			r := b.Post(path, form)
			if got := authorizetest.Decode[authorizetest.TokenResponse](t, r); r.StatusCode != http.StatusUnauthorized || got.Error != "invalid_client" {
				t.Errorf("%s with %s: %d %+v", path, name, r.StatusCode, got)
			}
		}
	}
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, authorizetest.WithResourceServer)
	b := authorizetest.NewBrowser(t, server)
	token := b.Tokens(nil).AccessToken
	if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", token, "service", "hush"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("another client revokes: %d", r.StatusCode)
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusOK {
		t.Errorf("after another's try: %d", r.StatusCode)
	}
	for _, revoked := range []string{token, token, "unknown"} {
		if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", revoked, "app", ""); r.StatusCode != http.StatusOK || strings.TrimSpace(authorizetest.Body(t, r)) != "{}" {
			t.Errorf("revoking: %d", r.StatusCode)
		}
	}
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo of a revoked token: %d", r.StatusCode)
	}
	if got := authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", token, "fhir-server", "rs")); got["active"] != false || len(got) != 1 {
		t.Errorf("introspection of a revoked token: %v", got)
	}
}

// A revocation that cannot be stored is never reported as successful.
func TestRevocationThatFails(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	fragment, err := url.ParseQuery(b.SignInAlice(authorizetest.Request(url.Values{"response_type": {"token"}})).Fragment)
	if err != nil {
		t.Fatal(err)
	}
	token := fragment.Get("access_token")
	store.SetMaxEntries(1)
	if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", token, "app", ""); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", r.StatusCode)
	}
}

// Revoking a refresh token revokes all tokens of its grant.
func TestRevocationOfRefreshToken(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]func(first, second authorizetest.TokenResponse) string{
		"the current one":       func(_, second authorizetest.TokenResponse) string { return second.RefreshToken },
		"one that was followed": func(first, _ authorizetest.TokenResponse) string { return first.RefreshToken },
	} {
		t.Run(name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
			first := b.Tokens(authorizetest.WithOfflineAccess(nil))
			second := b.Refresh(first.RefreshToken, nil)
			if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", token(first, second), "service", "hush"); r.StatusCode != http.StatusBadRequest {
				t.Errorf("another client revokes: %d", r.StatusCode)
			}
			if !b.IsTokenValid(second.AccessToken) {
				t.Error("another client's try revoked it")
			}
			if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", token(first, second), "app", ""); r.StatusCode != http.StatusOK {
				t.Errorf("revoking: %d", r.StatusCode)
			}
			authorizetest.CheckTokensInvalid(b, second.RefreshToken, first.AccessToken, second.AccessToken)
		})
	}
}
