package revalidation_test

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func (h *hospital) endSessionOf(b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
	h.t.Helper()
	sid, _ := b.Claims(tokens.IDToken)["sid"].(string)
	n, err := h.servers[0].EndSession(context.Background(), sid)
	if err != nil || n != 1 {
		h.t.Fatal(n, err)
	}
}

// The refresh token of a person's last ended sign-in is revoked at the provider, and its record is removed. Earlier tokens are
// not revoked, because some providers would then revoke all tokens of the person.
func TestRefreshTokenIsRevoked(t *testing.T) {
	t.Parallel()
	inHospital(t, 2, nil, func(h *hospital) {
		ward, tokens := h.signIn("online_access")
		office, officeTokens := h.signIn("online_access")
		h.endSessionOf(ward, tokens)
		waitForSweep(interval)
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 0, "there is another sign-in")
		h.wantWorks(office, officeTokens)
		h.endSessionOf(office, officeTokens)
		waitForSweep(interval)
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 1, "of the last")
		authorizetest.Equal(t, len(h.keys("upstream"))+len(h.keys("upstream-due")), 0, "left")
	})
}

// The refresh token of an ended sign-in is not revoked while the person signs in, because that could revoke the new
// one.
func TestSignInDuringClose(t *testing.T) {
	t.Parallel()
	const sweep = time.Minute // a fifth of the interval
	inHospital(t, 1, nil, func(h *hospital) {
		waitForSweep(sweep / 2)
		b, tokens := h.signIn("online_access")
		h.endSessionOf(b, tokens)
		var once sync.Once
		h.stored.failing(func(c *store.Call) bool {
			if strings.HasPrefix(c.Key, "upstream:") && c.Op == store.Add {
				once.Do(func() { h.stored.failing(nil); waitForSweep(sweep / 2) }) // a sweep, while the sign-in is still marked as pending
			}
			return false
		})
		h.signIn("online_access")
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 0)
	})
}

// If a sign-in is extended for a grant while the person signs in again in the same session, neither change is lost.
func TestExtensionDuringSignIn(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, _ := h.signIn("online_access")
		q := authorizetest.SelectProvider("hospital")
		q.Set("prompt", "login")
		there := authorizetest.Location(t, authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(q))))
		var once sync.Once
		var tokens authorizetest.TokenResponse
		h.stored.failing(func(c *store.Call) bool {
			if strings.HasPrefix(c.Key, "session:") && c.Op == store.Put {
				once.Do(func() {
					other := authorizetest.NewBrowser(t, h.servers[0])
					other.Cookies = maps.Clone(b.Cookies)
					tokens = other.RequestTokens(authorizetest.CodeForm(other.CodeWithSession(authorizetest.WithOfflineAccess(nil)), nil))
				})
			}
			return false
		})
		authorizetest.WantCode(t, authorizetest.Location(t, b.Get("/oauth2/callback/hospital?"+h.Authorize(t, there.String()).Encode())))
		h.stored.failing(nil)
		waitForSweep(50 * time.Hour) // the session has expired, and only the grant is left
		if tokens = b.Refresh(tokens.RefreshToken, nil); tokens.AccessToken == "" {
			t.Errorf("%s %s", tokens.Error, tokens.Description)
		}
	})
}

// A sign-in is not removed while a grant outlasts its session. It is then checked only while an access token is valid, and at a
// refresh.
func TestGrantOutlivesSession(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.endSessionOf(b, tokens)
		waitForSweep(50 * time.Hour)
		before := len(h.sentRefreshTokens())
		waitForSweep(200 * time.Hour)
		authorizetest.Equal(t, len(h.sentRefreshTokens()), before, "while nothing lasts")
		tokens = b.Refresh(tokens.RefreshToken, nil)
		authorizetest.Equal(t, len(h.sentRefreshTokens()), before+1, "at the refresh")
		h.becomes(nil)
		waitForSweep(interval)
		if b.IsTokenValid(tokens.AccessToken) {
			t.Error("the access token is still valid")
		}
		authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
	})
}

// A sign-in is revalidated with the provider as long as its access token is valid, even after the session has expired.
func TestTokenOutlivesSession(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		time.Sleep(23 * time.Hour)
		tokens = b.Refresh(tokens.RefreshToken, nil)
		waitForSweep(2 * time.Hour)
		if !b.IsTokenValid(tokens.AccessToken) || b.HasSession() {
			t.Error("the access token ended, or the session did not")
		}
		h.becomes(nil)
		waitForSweep(interval)
		if b.IsTokenValid(tokens.AccessToken) {
			t.Error("the access token is still valid")
		}
	})
}

// A new sign-in in a session replaces the tokens for checks. Earlier grants remain valid.
func TestSignInAgain(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.signInAgain(b)
		authorizetest.Equal(t, len(h.keys("upstream")), 1)
		tokens = h.wantWorks(b, tokens)
		h.endSessionOf(b, tokens)
		waitForSweep(interval)
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 0)
		h.becomes(nil)
		waitForSweep(interval)
		authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
	})
}

// keycloakBrowser is a browser for a server with a provider like Keycloak.
type keycloakBrowser struct {
	*authorizetest.Browser
	h *hospital
}

// request sends an authorization request and returns the redirect target.
func (b keycloakBrowser) request(scope string) *url.URL {
	q := authorizetest.SelectProvider("hospital")
	q.Set("scope", "openid user/*.rs "+scope)
	at := authorizetest.Location(b.h.t, b.Authorize(authorizetest.Request(q)))
	if at.Host == "" {
		at = authorizetest.Location(b.h.t, b.Get(at.String()))
	}
	return at
}

// answer returns the provider's response to a request.
func (b keycloakBrowser) answer(at *url.URL) url.Values {
	ask := *at
	ask.Path = string(providertest.Authorization)
	return b.h.Authorize(b.h.t, ask.String())
}

func (b keycloakBrowser) returned(answer url.Values) *url.URL {
	return authorizetest.Location(b.h.t, b.Get("/oauth2/callback/hospital?"+answer.Encode()))
}

func inKeycloak(t *testing.T, test func(signIn func() keycloakBrowser)) {
	inHospital(t, -1, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.Metadata["authorization_endpoint"] = "https://login.hospital.example/realms/h/protocol/openid-connect/auth"
		})
		test(func() keycloakBrowser {
			b := keycloakBrowser{authorizetest.NewBrowser(h.t, h.servers[0]), h}
			at := b.request("online_access")
			if strings.Contains(at.Query().Get("scope"), "offline_access") {
				h.t.Errorf("sign-in: %v", at)
			}
			if at = b.returned(b.answer(at)); !at.Query().Has("code") {
				h.t.Fatalf("no code: %v", at)
			}
			return b
		})
	})
}

// A longer-lived refresh token is requested from Keycloak only for an app with offline_access. The request is separate from the
// sign-in and made only once.
func TestLongLivedRefreshToken(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		inKeycloak(t, func(signIn func() keycloakBrowser) {
			b := signIn()
			apart := b.request("offline_access")
			if q := apart.Query(); !strings.Contains(q.Get("scope"), "offline_access") || q.Has("prompt") {
				b.h.t.Errorf("apart: %v", apart)
			}
			answer := b.answer(apart)
			if refused {
				answer = url.Values{"error": {"invalid_scope"}, "state": {apart.Query().Get("state")}}
			}
			b.returned(answer)
			at := b.request("offline_access")
			if !at.Query().Has("code") {
				b.h.t.Fatalf("requests after the denial: %v", at)
			}
			b.h.wantWorks(b.Browser, b.Redeem(at))
		})
	}
}

// A request for a longer-lived refresh token never continues another session.
func TestLongLivedTokenIsOfItsSession(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		inKeycloak(t, func(signIn func() keycloakBrowser) {
			b, stolen := signIn(), signIn()
			apart := b.request("offline_access")
			answer := b.answer(apart)
			if refused {
				answer = url.Values{"error": {"invalid_scope"}, "state": {apart.Query().Get("state")}}
			}
			b.Cookies[browser.SessionCookie] = stolen.Cookies[browser.SessionCookie]
			if at := b.returned(answer); at.Query().Has("code") {
				b.h.t.Errorf("refused %t: %v", refused, at)
			}
		})
	}
}
