package token_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Access tokens contain the claims of RFC 9068 §2.2.
func TestAccessTokenClaims(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	first := b.Tokens(authorizetest.WithOfflineAccess(nil))
	for name, token := range map[string]string{"of a code": first.AccessToken, "of a refresh token": b.Refresh(first.RefreshToken, nil).AccessToken} {
		claims := b.Claims(token)
		for claim, want := range map[string]any{
			"iss": authorizetest.Issuer, "sub": "alice", "aud": authorizetest.FHIRBase, "client_id": "app", "scope": first.Scope, "acr": "sfa",
		} {
			if claims[claim] != want {
				t.Errorf("%s: %s = %v, want %v", name, claim, claims[claim], want)
			}
		}
		if claims["exp"].(float64)-claims["iat"].(float64) != 3600 || claims["jti"] == "" || claims["auth_time"] == nil {
			t.Errorf("%s: %v", name, claims)
		}
	}
}

// Codes and refresh tokens have enough entropy, are unique and contain no characters that require percent-encoding.
func TestEntropy(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, authorizetest.AllowRefreshTokens)
	seen := map[string]bool{}
	for range 20 {
		b := authorizetest.NewBrowser(t, server)
		code := b.Code(authorizetest.WithOfflineAccess(nil))
		refresh := authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))).RefreshToken
		for _, secret := range []string{code, refresh} {
			if bits, err := base64.RawURLEncoding.DecodeString(secret); err != nil || len(bits) < 32 || seen[secret] {
				t.Errorf("%q: %v", secret, err)
			}
			seen[secret] = true
		}
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

// Access tokens are valid for 3600 seconds (docs/evidence/interface.md §8).
func TestAccessTokenLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		token := b.Tokens(nil).AccessToken
		time.Sleep(time.Hour - time.Second)
		if r := b.Userinfo(token); r.StatusCode != http.StatusOK {
			t.Errorf("a second before the hour: %d", r.StatusCode)
		}
		time.Sleep(2 * time.Second)
		if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("a second after the hour: %d", r.StatusCode)
		}
	})
}

// The ID token contains the nonce of the request, which prevents replay (docs/evidence/interface.md §4.1).
func TestNonceInIDToken(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	answer := b.Tokens(url.Values{"nonce": {"n 0/S6_WzA2Mj"}})
	authorizetest.CheckIDToken(b, answer.IDToken, answer.AccessToken, "n 0/S6_WzA2Mj")
}

// An ID token is issued only if the scope openid is requested (docs/evidence/interface.md §2).
func TestNoIDTokenWithoutOpenID(t *testing.T) {
	t.Parallel()
	if answer := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Tokens(url.Values{"scope": {"demo.read"}}); answer.IDToken != "" {
		t.Errorf("%+v", answer)
	}
}

// With the client option, ID tokens of the code flow contain the claims of the scope, including the provider's groups.
func TestScopeClaimsInIDToken(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{
			"name": "Sam", "email": "sam@example.org", "email_verified": true, "groups": []string{"clinicians", "managers"},
		}}}
	})
	for _, inIDToken := range []bool{true, false} {
		b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			c.Clients[0].Scopes = []string{"groups"}
			if inIDToken {
				c.Clients[0].Compat = []string{client.CompatIDTokenClaims}
			}
		}))
		q := authorizetest.SelectProvider("hospital")
		q.Set("scope", "openid profile email groups")
		answer := b.RequestTokens(authorizetest.CodeForm(authorizetest.SignInAtProvider(b, q).Query().Get("code"), nil))
		claims := b.Claims(answer.IDToken)
		got := fmt.Sprintln(claims["name"], claims["email"], claims["email_verified"], claims["groups"])
		if want := "Sam sam@example.org true [clinicians managers]\n"; (got == want) != inIDToken {
			t.Errorf("in the ID token %t: %s", inIDToken, got)
		}
		ask := httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil)
		ask.Header.Set("Authorization", "Bearer "+answer.AccessToken)
		userinfo := authorizetest.Decode[map[string]any](t, b.Send(ask))
		if groups := fmt.Sprint(userinfo["groups"]); groups != "[clinicians managers]" {
			t.Errorf("userinfo contains groups %s", groups)
		}
	}
}

// Groups are released only if requested and permitted.
func TestGroupsNeedRequest(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	if got := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {"openid groups"}}))).Query().Get("error"); got != "invalid_scope" {
		t.Errorf("a client without the scope: %q", got)
	}
}

// Access tokens issued through the browser are valid for at most an hour.
func TestImplicitTokensLiveAnHour(t *testing.T) {
	t.Parallel()
	for lifetime, want := range map[time.Duration]string{24 * time.Hour: "3600", 10 * time.Minute: "600"} {
		s := authorizetest.New(t, func(c *authorize.Config) { c.AccessTokenLifetime = lifetime })
		b := authorizetest.NewBrowser(t, s)
		fragment, err := url.ParseQuery(b.SignInAlice(authorizetest.Request(url.Values{"response_type": {"token"}})).Fragment)
		if err != nil {
			t.Fatal(err)
		}
		claims := b.Claims(fragment.Get("access_token"))
		lives := fmt.Sprint(claims["exp"].(float64) - claims["iat"].(float64))
		if fragment.Get("expires_in") != want || lives != want {
			t.Errorf("%v: expires_in %s, the token lives %s", lifetime, fragment.Get("expires_in"), lives)
		}
		if code := authorizetest.NewBrowser(t, s).Tokens(nil); fmt.Sprint(code.ExpiresIn) != fmt.Sprint(lifetime.Seconds()) {
			t.Errorf("%v: by a code %d", lifetime, code.ExpiresIn)
		}
	}
}

// Servers with the same keys and store accept each other's access tokens only for the same issuer and FHIR server.
func TestTokenOfAnotherServer(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	server := func(change func(*authorize.Config)) http.Handler {
		return authorizetest.New(t, func(c *authorize.Config) { c.Store = memory; change(c) })
	}
	b := authorizetest.NewBrowser(t, server(func(*authorize.Config) {}))
	tokens := b.Tokens(nil)
	for name, tt := range map[string]struct {
		change func(*authorize.Config)
		works  bool
	}{
		"the same":       {func(*authorize.Config) {}, true},
		"another API":    {func(c *authorize.Config) { c.FHIRBasePath = "/fhir/R5" }, false},
		"another issuer": {func(c *authorize.Config) { c.Issuer = "https://other.example" }, false},
	} {
		other := authorizetest.NewBrowser(t, server(tt.change))
		if r := other.Userinfo(tokens.AccessToken); (r.StatusCode == http.StatusOK) != tt.works {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
}

// ID tokens of another issuer with the same keys are rejected as id_token_hint. So are signed userinfo responses.
func TestHintOfAnotherKind(t *testing.T) {
	t.Parallel()
	config := func(c *authorize.Config) { c.Clients[0].UserinfoAlgorithm = "RS256" }
	s := authorizetest.New(t, config)
	b := authorizetest.NewBrowser(t, s)
	tokens := b.Tokens(nil)
	foreign := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { config(c); c.Issuer = "https://other.example" }))
	page := foreign.SignIn(authorizetest.Request(url.Values{"aud": {"https://other.example/fhir/R4"}}), "alice", "right")
	code := authorizetest.Location(t, page).Query().Get("code")
	userinfo := authorizetest.Body(t, b.Userinfo(tokens.AccessToken))
	if strings.Count(userinfo, ".") != 2 || code == "" {
		t.Fatalf("userinfo %s, code %q", userinfo, code)
	}
	for name, tt := range map[string]struct {
		hint string
		ok   bool
	}{
		"an ID token":      {tokens.IDToken, true},
		"signed userinfo":  {userinfo, false},
		"another issuer's": {foreign.RequestTokens(authorizetest.CodeForm(code, nil)).IDToken, false},
		"an access token":  {tokens.AccessToken, false},
	} {
		back := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"prompt": {"none"}, "id_token_hint": {tt.hint}})))
		if (back.Query().Get("code") != "") != tt.ok {
			t.Errorf("%s: %v", name, back)
		}
	}
}

// A cached token becomes invalid once its key is retired.
func TestVerifiedTokenOfRetiredKey(t *testing.T) {
	t.Parallel()
	keys := keyring.New(new(providertest.Storage), "keys.json", slog.New(slog.DiscardHandler))
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Keys = keys }))
	tokens := b.Tokens(nil)
	if !b.IsTokenValid(tokens.AccessToken) {
		t.Fatal("the token does not work")
	}
	for _, info := range keys.Info() {
		if err := keys.Retire(t.Context(), info.KeyID); err != nil {
			t.Fatal(err)
		}
	}
	if b.IsTokenValid(tokens.AccessToken) {
		t.Error("the token still works")
	}
}

// A token of one kind is rejected as another kind, even if both are signed with the same key.
func TestTokenKindConfusion(t *testing.T) {
	t.Parallel()
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				authorizetest.WithResourceServer(c)
				c.Clients[0].IDTokenAlgorithm = alg
			}))
			tokens := b.Tokens(authorizetest.WithOfflineAccess(nil))
			if header := joseHeader(t, tokens.IDToken); header.Algorithm != alg || header.ExtraHeaders["typ"] != "JWT" {
				t.Errorf("ID token: %+v", header)
			}
			if header := joseHeader(t, tokens.AccessToken); header.Algorithm != "ES256" || header.ExtraHeaders["typ"] != "at+jwt" {
				t.Errorf("access token: %+v", header)
			}
			b.Claims(tokens.IDToken)
			for name, token := range map[string]string{"ID token": tokens.IDToken, "refresh token": tokens.RefreshToken} {
				if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
					t.Errorf("userinfo by %s: %d", name, r.StatusCode)
				}
			}
			for name, token := range map[string]string{"an ID token": tokens.IDToken, "an access token": tokens.AccessToken} {
				if got := b.Refresh(token, nil); got.Error != "invalid_grant" {
					t.Errorf("refresh by %s: %+v", name, got)
				}
			}
			if got := authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", tokens.IDToken, "fhir-server", "rs")); got["active"] != false {
				t.Errorf("introspection of an ID token: %v", got)
			}
			if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.AccessToken); r.StatusCode != http.StatusBadRequest {
				t.Errorf("an access token as id_token_hint: %d", r.StatusCode)
			}
			if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.IDToken); r.StatusCode != http.StatusOK || b.HasSession() {
				t.Errorf("an ID token as id_token_hint: %d", r.StatusCode)
			}
		})
	}
}

// Cached tokens still expire and can be revoked.
func TestRememberedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		token := b.Tokens(nil).AccessToken
		for range 3 {
			if !b.IsTokenValid(token) {
				t.Fatal("does not work")
			}
		}
		for _, altered := range []string{token[:len(token)-1], token + "A", authorizetest.AlterLetter(token)} {
			if b.IsTokenValid(altered) {
				t.Errorf("…%s works", altered[len(altered)-4:])
			}
		}
		time.Sleep(time.Hour)
		if b.IsTokenValid(token) {
			t.Error("works after its time")
		}
	})
}

// A token becomes invalid when its client or user is removed.
func TestTokenOfRemovedUserOrClient(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*authorize.Config){
		"client": func(c *authorize.Config) { c.Clients = c.Clients[1:] },
		"user":   func(c *authorize.Config) { c.Users = c.Users[1:] },
	} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		token := b.Tokens(nil).AccessToken
		b.Server = authorizetest.New(t, remove)
		if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
}

// A clock that jumps ahead beyond a token's lifetime and back does not revive revoked tokens, because revocations outlive
// tokens by a day, and expired tokens can be revoked for a day.
func TestRevocationOutlivesClockJump(t *testing.T) {
	t.Parallel()
	const jump = 23 * time.Hour
	for name, tt := range map[string]struct {
		before, after time.Duration // time until the revocation, and then until the clock jumps back
		revoke        func(b *authorizetest.Browser, s *authorize.Server, tokens authorizetest.TokenResponse)
		wantStored    bool
	}{
		"a token, then the clock jumps":           {0, time.Hour + jump, revokeToken, true},
		"a token, while it seems to have expired": {time.Hour + jump, time.Minute, revokeToken, true},
		"a token that expired long ago":           {time.Hour + 25*time.Hour, 0, revokeToken, false},
		"a person, then the clock jumps": {0, 24*time.Hour + jump, func(b *authorizetest.Browser, s *authorize.Server, _ authorizetest.TokenResponse) {
			if _, err := s.RevokeGrants(b.T.Context(), "alice", ""); err != nil {
				b.T.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := store.NewMemory(0, 0)
				s := authorizetest.New(t, func(c *authorize.Config) { c.Store = memory })
				b := authorizetest.NewBrowser(t, s)
				tokens := b.Tokens(nil)
				time.Sleep(tt.before)
				tt.revoke(b, s, tokens)
				time.Sleep(tt.after)
				stored := 0
				for _, kind := range []string{"revoked:", "cutoff:user:"} {
					keys, err := memory.List(t.Context(), kind)
					authorizetest.NoError(t, err)
					stored += len(keys)
				}
				if stored > 0 != tt.wantStored {
					t.Errorf("%d revocations are stored", stored)
				}
			})
		})
	}
}

func revokeToken(b *authorizetest.Browser, _ *authorize.Server, tokens authorizetest.TokenResponse) {
	authorizetest.WantStatus(b.T, b.Post("/oauth2/revoke", url.Values{"token": {tokens.AccessToken}, "client_id": {"app"}}), http.StatusOK)
}
