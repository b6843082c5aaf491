package token_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// RFC 9068 §2.2: what an access token says.
func TestAccessTokenClaims(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.Refreshing))
	first := b.Tokens(servertest.OfflineAccess(nil))
	for name, token := range map[string]string{"of a code": first.AccessToken, "of a refresh token": b.Refresh(first.Refresh, nil).AccessToken} {
		claims := b.Claims(token)
		for claim, want := range map[string]any{
			"iss": servertest.Issuer, "sub": "alice", "aud": servertest.FHIRBase, "client_id": "app", "scope": first.Scope, "acr": "sfa",
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

// Codes and refresh tokens: enough bits, none twice, in characters that clients
// that do not percent-encode leave as they are.
func TestEntropy(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, servertest.Refreshing)
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

func joseHeader(t *testing.T, token string) jose.Header {
	t.Helper()
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	return jws.Signatures[0].Protected
}

// "Access token lifetime shown | 3600 seconds"
func TestAccessTokenLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewBrowser(t, servertest.New(t, nil))
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

// "nonce | included in the ID token issued; guards against replay."
func TestNonceInIDToken(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	answer := b.Tokens(url.Values{"nonce": {"n 0/S6_WzA2Mj"}})
	servertest.CheckIDToken(b, answer.IDToken, answer.AccessToken, "n 0/S6_WzA2Mj")
}

// "An ID token is issued only when the openid scope is requested."
func TestNoIDTokenWithoutOpenID(t *testing.T) {
	t.Parallel()
	if answer := servertest.NewBrowser(t, servertest.New(t, nil)).Tokens(url.Values{"scope": {"demo.read"}}); answer.IDToken != "" {
		t.Errorf("%+v", answer)
	}
}

// Where a client says so, ID tokens of the code flow tell what the scope asks for, with
// the groups that a provider told of.
func TestScopeClaimsInIDToken(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t, func(s *authorizetest.Settings) {
		s.People = []authorizetest.Person{{Subject: "s", Claims: map[string]any{
			"name": "Sam", "email": "sam@example.org", "email_verified": true, "groups": []string{"clinicians", "managers"},
		}}}
	})
	for _, inIDToken := range []bool{true, false} {
		b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			c.Clients[0].Scopes = []string{"groups"}
			if inIDToken {
				c.Clients[0].Compat = []string{client.IDTokenClaims}
			}
		}))
		q := servertest.ByProvider("hospital")
		q.Set("scope", "openid profile email groups")
		answer := b.RequestTokens(servertest.CodeForm(servertest.Federate(b, q).Query().Get("code"), nil))
		claims := b.Claims(answer.IDToken)
		got := fmt.Sprintln(claims["name"], claims["email"], claims["email_verified"], claims["groups"])
		if want := "Sam sam@example.org true [clinicians managers]\n"; (got == want) != inIDToken {
			t.Errorf("in the ID token %t: %s", inIDToken, got)
		}
		ask := httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil)
		ask.Header.Set("Authorization", "Bearer "+answer.AccessToken)
		told := servertest.Decode[map[string]any](t, b.Send(ask))
		if groups := fmt.Sprint(told["groups"]); groups != "[clinicians managers]" {
			t.Errorf("userinfo tells of groups %s", groups)
		}
	}
}

// Nobody learns of groups who does not ask for them, or may not.
func TestGroupsAreAskedFor(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	if got := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"scope": {"openid groups"}}))).Query().Get("error"); got != "invalid_scope" {
		t.Errorf("a client without the scope: %q", got)
	}
}

// An access token that came by way of the browser lives an hour at most.
func TestImplicitTokensLiveAnHour(t *testing.T) {
	t.Parallel()
	for lifetime, want := range map[time.Duration]string{24 * time.Hour: "3600", 10 * time.Minute: "600"} {
		s := servertest.New(t, func(c *authorize.Config) { c.AccessTokenLifetime = lifetime })
		b := servertest.NewBrowser(t, s)
		fragment, err := url.ParseQuery(b.Answer(servertest.Request(url.Values{"response_type": {"token"}})).Fragment)
		if err != nil {
			t.Fatal(err)
		}
		claims := b.Claims(fragment.Get("access_token"))
		lives := fmt.Sprint(claims["exp"].(float64) - claims["iat"].(float64))
		if fragment.Get("expires_in") != want || lives != want {
			t.Errorf("%v: expires_in %s, the token lives %s", lifetime, fragment.Get("expires_in"), lives)
		}
		if code := servertest.NewBrowser(t, s).Tokens(nil); fmt.Sprint(code.ExpiresIn) != fmt.Sprint(lifetime.Seconds()) {
			t.Errorf("%v: by a code %d", lifetime, code.ExpiresIn)
		}
	}
}
