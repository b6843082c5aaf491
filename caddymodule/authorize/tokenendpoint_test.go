package authorize_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Codes and refresh tokens: enough bits, none twice, in characters that clients
// that do not percent-encode leave as they are.
func TestEntropy(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, refreshing)
	seen := map[string]bool{}
	for range 20 {
		b := servertest.NewBrowser(t, server)
		code := b.Code(servertest.OfflineAccess(nil))
		refresh := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(code, nil))).Refresh
		for _, secret := range []string{code, refresh} {
			if bits, err := base64.RawURLEncoding.DecodeString(secret); err != nil || len(bits) < 32 || seen[secret] {
				t.Errorf("%q: %v", secret, err)
			}
			seen[secret] = true
		}
	}
}

// What takes tokens takes them from the body of a POST alone, and no answer is
// kept by a cache, refusals included.
func TestFormsAlone(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, resourceServer))
	token := b.Tokens(nil).AccessToken
	for _, path := range []string{"/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"} {
		query := url.Values{"token": {token}, "client_id": {"app"}, "grant_type": {"refresh_token"}}.Encode()
		asJSON := servertest.PostRequest(path, nil)
		asJSON.Header.Set("Content-Type", "application/json")
		tests := map[string]*http.Response{
			"the query":   b.Send(servertest.PostRequest(path+"?"+query, nil)),
			"JSON":        b.Send(asJSON),
			"twice":       b.Post(path, url.Values{"client_id": {"app", "app"}, "token": {token}}),
			"too large":   b.Post(path, url.Values{"client_id": {"app"}, "token": {token}, "x": {strings.Repeat("a", 64<<10)}}),
			"GET":         b.Get(path + "?" + query),
			"no password": b.Post(path, url.Values{"grant_type": {"password"}, "username": {"alice"}, "password": {"right"}, "client_id": {"app"}}),
		}
		for name, r := range tests {
			if r.StatusCode < 400 || r.StatusCode >= 500 {
				t.Errorf("%s by %s: %d", path, name, r.StatusCode)
			}
			if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
				t.Errorf("%s by %s: header %v", path, name, r.Header)
			}
		}
	}
	if !b.TokenWorks(token) {
		t.Error("one of them revoked the token")
	}
	for path, client := range map[string]string{"/oauth2/revoke": "app", "/oauth2/introspect": "fhir-server"} {
		secret := map[string]string{"fhir-server": "rs"}[client]
		if r := b.AskAboutToken(path, token, client, secret); r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
	}
}

// No token passes for one of another kind, even where one key signs both.
func TestTokensOfOneKindAlone(t *testing.T) {
	t.Parallel()
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				refreshing(c)
				resourceServer(c)
				c.Clients[0].IDTokenAlgorithm = alg
			}))
			tokens := b.Tokens(servertest.OfflineAccess(nil))
			if header := joseHeader(t, tokens.IDToken); header.Algorithm != alg || header.ExtraHeaders["typ"] != "JWT" {
				t.Errorf("ID token: %+v", header)
			}
			if header := joseHeader(t, tokens.AccessToken); header.Algorithm != "ES256" || header.ExtraHeaders["typ"] != "at+jwt" {
				t.Errorf("access token: %+v", header)
			}
			b.Claims(tokens.IDToken)
			for name, token := range map[string]string{"ID token": tokens.IDToken, "refresh token": tokens.Refresh} {
				if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
					t.Errorf("userinfo by %s: %d", name, r.StatusCode)
				}
			}
			for name, token := range map[string]string{"an ID token": tokens.IDToken, "an access token": tokens.AccessToken} {
				if got := b.Refresh(token, nil); got.Error != "invalid_grant" {
					t.Errorf("refresh by %s: %+v", name, got)
				}
			}
			if got := servertest.Decode[map[string]any](t, b.AskAboutToken("/oauth2/introspect", tokens.IDToken, "fhir-server", "rs")); got["active"] != false {
				t.Errorf("introspection of an ID token: %v", got)
			}
			if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.AccessToken); r.StatusCode != http.StatusBadRequest {
				t.Errorf("an access token as id_token_hint: %d", r.StatusCode)
			}
			if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.IDToken); r.StatusCode != http.StatusOK || b.SignedIn() {
				t.Errorf("an ID token as id_token_hint: %d", r.StatusCode)
			}
		})
	}
}

func joseHeader(t *testing.T, token string) jose.Header {
	t.Helper()
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	return jws.Signatures[0].Protected
}

// RFC 9068 §2.2: what an access token says.
func TestAccessTokenClaims(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, refreshing))
	first := b.Tokens(servertest.OfflineAccess(nil))
	for name, token := range map[string]string{"of a code": first.AccessToken, "of a refresh token": b.Refresh(first.Refresh, nil).AccessToken} {
		claims := b.Claims(token)
		for claim, want := range map[string]any{
			"iss": servertest.Issuer, "sub": "alice", "aud": servertest.FHIRBase, "client_id": "app", "scope": first.Scope,
		} {
			if claims[claim] != want {
				t.Errorf("%s: %s = %v, want %v", name, claim, claims[claim], want)
			}
		}
		if claims["exp"].(float64)-claims["iat"].(float64) != 3600 || claims["jti"] == "" {
			t.Errorf("%s: %v", name, claims)
		}
	}
}

// The words of a request are the words of the answer, those of SMART 1 too.
func TestScopeInTheAnswer(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"user/Patient.read", "user/Patient.rs", "user/*.read offline_access"} {
		b := servertest.NewBrowser(t, servertest.New(t, refreshing))
		got := b.Tokens(url.Values{"scope": {scope}})
		if got.Scope != scope {
			t.Errorf("%s: %s", scope, got.Scope)
		}
		if got.Refresh != "" && b.Refresh(got.Refresh, nil).Scope != scope {
			t.Errorf("%s: refreshed %s", scope, got.Scope)
		}
	}
}

// A verified token is remembered, and yet expires and can be revoked.
func TestRememberedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewBrowser(t, servertest.New(t, nil))
		token := b.Tokens(nil).AccessToken
		for range 3 {
			if !b.TokenWorks(token) {
				t.Fatal("does not work")
			}
		}
		for _, altered := range []string{token[:len(token)-1], token + "A", servertest.Altered(token)} {
			if b.TokenWorks(altered) {
				t.Errorf("…%s works", altered[len(altered)-4:])
			}
		}
		time.Sleep(time.Hour)
		if b.TokenWorks(token) {
			t.Error("works after its time")
		}
	})
}

func TestDiscoveryOfRefreshTokens(t *testing.T) {
	t.Parallel()
	documents := func(change func(*authorize.Config)) (openid, smart map[string]any) {
		b := servertest.NewBrowser(t, servertest.New(t, change))
		return servertest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration")), servertest.Decode[map[string]any](t, b.Get("/fhir/R4/.well-known/smart-configuration"))
	}
	offlineOnly := func(c *authorize.Config) { c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access") }
	tests := []struct {
		name            string
		change          func(*authorize.Config)
		refresh         bool
		offline, online bool
		algorithms      string
	}{
		{"no client may", nil, false, false, false, "RS256"},
		{"one may, offline", offlineOnly, true, true, false, "RS256"},
		{"some may, both", refreshing, true, true, true, "RS256"},
		{"ES256", func(c *authorize.Config) { c.Clients[0].IDTokenAlgorithm = "ES256" }, false, false, false, "RS256 ES256"},
		{"a client that has no flow for it", func(c *authorize.Config) {
			c.Clients[3].Scopes = []string{"offline_access"}
		}, false, false, false, "RS256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			openid, smart := documents(tt.change)
			for name, document := range map[string]map[string]any{"openid": openid, "smart": smart} {
				if got := strings.Contains(list(document["grant_types_supported"]), "refresh_token"); got != tt.refresh {
					t.Errorf("%s: grant types %v", name, document["grant_types_supported"])
				}
				if !strings.Contains(list(document["token_endpoint_auth_methods_supported"]), "private_key_jwt") || !strings.Contains(list(document["token_endpoint_auth_signing_alg_values_supported"]), "ES384") {
					t.Errorf("%s: %v", name, document)
				}
				for scope, want := range map[string]bool{"offline_access": tt.offline, "online_access": tt.online} {
					if got := strings.Contains(list(document["scopes_supported"]), scope); got != want {
						t.Errorf("%s: scopes %v", name, document["scopes_supported"])
					}
				}
			}
			capabilities := list(smart["capabilities"])
			if strings.Contains(capabilities, "permission-offline") != tt.offline || strings.Contains(capabilities, "permission-online") != tt.online || !strings.Contains(capabilities, "client-confidential-asymmetric") {
				t.Errorf("capabilities %s", capabilities)
			}
			if got := list(openid["id_token_signing_alg_values_supported"]); got != tt.algorithms {
				t.Errorf("ID token algorithms %s", got)
			}
		})
	}
}

// Test modules of the OpenID Foundation's conformance suite, by their names.
func TestOIDF(t *testing.T) {
	t.Parallel()
	modules := map[string]func(*testing.T){
		"oidcc-codereuse": func(t *testing.T) { codeReuse(t, 0) },
		"oidcc-codereuse-30seconds": func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { codeReuse(t, 30*time.Second) })
		},
		"oidcc-refresh-token": func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, refreshing))
			first := confidentialTokens(b)
			secret := url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}}
			second := b.Refresh(first.Refresh, secret)
			before, after := b.Claims(first.IDToken), b.Claims(second.IDToken)
			for _, claim := range []string{"iss", "sub", "aud", "auth_time"} {
				if before[claim] != after[claim] {
					t.Errorf("%s: %v, then %v", claim, before[claim], after[claim])
				}
			}
			if r := b.Post("/oauth2/token", servertest.RefreshForm(second.Refresh, nil)); r.StatusCode != http.StatusBadRequest {
				t.Errorf("with another client: %d", r.StatusCode)
			}
		},
		"oidcc-ensure-client-assertion-with-iss-aud-succeeds": func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.NewBackend(t, nil))
			r := b.Post("/oauth2/token", servertest.AssertionForm(servertest.Assertion(t, jose.RS256, map[string]any{"aud": servertest.Issuer}, nil), nil))
			if r.StatusCode != http.StatusOK {
				t.Error(r.StatusCode)
			}
		},
	}
	for name, module := range modules {
		t.Run(name, module)
	}
}

func codeReuse(t *testing.T, after time.Duration) {
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	code := b.Code(nil)
	first := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(code, nil)))
	time.Sleep(after)
	if got := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(code, nil))); got.Error != "invalid_grant" || b.TokenWorks(first.AccessToken) {
		t.Errorf("%+v; the first token works: %t", got, b.TokenWorks(first.AccessToken))
	}
}

// Tests of Inferno's SMART App Launch STU2.2 suite, by their ids.
func TestInferno(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, r *http.Response) {
		t.Helper()
		if r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", r.StatusCode)
		}
	}
	granted := func(t *testing.T, r *http.Response) {
		t.Helper()
		got := servertest.Decode[map[string]any](t, r)
		if _, numeric := got["expires_in"].(float64); r.StatusCode != http.StatusOK || !numeric || got["token_type"] != "Bearer" || got["scope"] == nil {
			t.Errorf("%d %v", r.StatusCode, got)
		}
	}
	post := func(t *testing.T, form url.Values) *http.Response {
		return servertest.NewBrowser(t, servertest.NewBackend(t, nil)).Post("/oauth2/token", form)
	}
	refresh := func(t *testing.T, change url.Values) *http.Response {
		b := servertest.NewBrowser(t, servertest.New(t, refreshing))
		return b.Post("/oauth2/token", servertest.RefreshForm(b.Tokens(servertest.OfflineAccess(nil)).Refresh, change))
	}
	tests := map[string]func(*testing.T){
		"token_refresh without scope": func(t *testing.T) { granted(t, refresh(t, nil)) },
		"token_refresh with scope": func(t *testing.T) {
			granted(t, refresh(t, url.Values{"scope": {"openid user/*.rs offline_access"}}))
		},
		"invalid refresh token": func(t *testing.T) {
			refused(t, refresh(t, url.Values{"refresh_token": {"INVALID_REFRESH_TOKEN"}}))
		},
		"backend_services_invalid_grant_type": func(t *testing.T) {
			r := post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, nil, nil), url.Values{"grant_type": {"not_a_grant_type"}}))
			if r.StatusCode != http.StatusBadRequest {
				t.Error(r.StatusCode)
			}
		},
		"backend_services_invalid_client_assertion": func(t *testing.T) {
			refused(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, nil, nil), url.Values{"client_assertion_type": {"not_an_assertion_type"}})))
		},
		"backend_services_invalid_jwt": func(t *testing.T) {
			refused(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, map[string]any{"iss": "not_a_valid_iss"}, nil), nil)))
		},
		"backend_services_auth_request_success RS384": func(t *testing.T) {
			granted(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.RS384, nil, nil), nil)))
		},
		"backend_services_auth_request_success ES384": func(t *testing.T) {
			granted(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, nil, nil), nil)))
		},
		"token_introspection of an invalid token": func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, resourceServer))
			if got := servertest.Body(t, b.AskAboutToken("/oauth2/introspect", "invalid_token_value", "fhir-server", "rs")); strings.TrimSpace(got) != `{"active":false}` {
				t.Error(got)
			}
		},
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}
