package revalidation_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// inIntrospecting runs a test with a provider that issues no refresh tokens. Its access tokens are valid for one hour and can
// be introspected.
func inIntrospecting(t *testing.T, gateways int, test func(*hospital)) {
	t.Helper()
	inHospital(t, gateways, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.Metadata["introspection_endpoint"] = h.Issuer + string(providertest.Introspection)
			s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token") }
		})
		test(h)
	})
}

// If the provider supports introspection, a removed person loses access within the interval while the access token is valid.
func TestInactiveEndsSignIn(t *testing.T) {
	t.Parallel()
	for _, lasting := range []string{"online_access", "online_access offline_access"} {
		inIntrospecting(t, 2, func(h *hospital) {
			b, tokens := h.signIn(lasting)
			waitForSweep(30 * time.Minute)
			tokens = h.wantWorks(b, tokens)
			h.becomes(nil)
			waitForSweep(interval)
			if b.IsTokenValid(tokens.AccessToken) {
				t.Error("the access token is still valid")
			}
			h.wantInvalid(b, tokens)
			authorizetest.Equal(t, len(h.keys("upstream")), 0, "left")
		})
	}
}

// After the access token has expired, the session continues without checks until the outage limit. Then a sign-in is required.
func TestExpiredAccessTokenIsIgnored(t *testing.T) {
	t.Parallel()
	inIntrospecting(t, 2, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		waitForSweep(time.Hour)
		before := len(h.Requests(providertest.Introspection))
		h.becomes(nil)
		waitForSweep(outage - time.Hour - interval)
		tokens = h.wantServed(b, tokens)
		authorizetest.Equal(t, len(h.Requests(providertest.Introspection)), before, "introspections by an expired token")
		waitForSweep(interval + time.Hour)
		if b.HasSession() {
			t.Error("the session is still valid")
		}
		if got := b.Refresh(tokens.RefreshToken, nil); got.Error != "invalid_grant" {
			t.Errorf("%+v", got)
		}
		h.becomes(providertest.Alice.Claims)
		h.signInAgain(b)
		h.wantWorks(b, tokens)
	})
}

// A denial of a token that expires during the check is ignored.
func TestAccessTokenExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	inIntrospecting(t, -1, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		h.becomes(nil)
		time.Sleep(time.Hour - relyingparty.Leeway - time.Second)
		h.delay = 2 * time.Second
		if h.wantServed(b, tokens); b.HasSession() {
			t.Error("not sent to the provider with an expired access token")
		}
		authorizetest.Equal(t, len(h.Requests(providertest.Introspection)), 2)
	})
}

// signInAgain signs Alice in again in a browser's session.
func (h *hospital) signInAgain(b *authorizetest.Browser) {
	h.t.Helper()
	q := authorizetest.SelectProvider("hospital")
	q.Set("prompt", "login")
	there := authorizetest.Location(h.t, authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(q))))
	authorizetest.WantCode(h.t, authorizetest.Location(h.t, b.Get("/oauth2/callback/hospital?"+h.Authorize(h.t, there.String()).Encode())))
}

// Failing introspection is treated as an outage. If introspection also failed at the sign-in, it is not tried again, and the
// outage limit starts at the sign-in.
func TestIntrospectionFails(t *testing.T) {
	t.Parallel()
	inIntrospecting(t, 1, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		h.SetFault(providertest.Introspection, providertest.Status(http.StatusForbidden))
		waitForSweep(2 * interval)
		tokens = h.wantWorks(b, tokens)
		h.SetFault(providertest.Introspection, nil)
		h.becomes(nil)
		waitForSweep(interval)
		h.wantInvalid(b, tokens)
	})
	inIntrospecting(t, 1, func(h *hospital) {
		h.SetFault(providertest.Introspection, providertest.JSON(http.StatusOK, map[string]any{"active": false}))
		b, tokens := h.signIn("online_access")
		waitForSweep(outage - interval)
		tokens = h.wantServed(b, tokens)
		authorizetest.Equal(t, len(h.Requests(providertest.Introspection)), 1, "asked")
		waitForSweep(interval)
		if got := b.Refresh(tokens.RefreshToken, nil); b.HasSession() || got.Error != "invalid_grant" {
			t.Errorf("served after an outage: %+v", got)
		}
	})
}

// If a new sign-in returns no refresh token, as with Google, the existing token remains in use.
func TestRefreshTokenStays(t *testing.T) {
	t.Parallel()
	inIntrospecting(t, 1, func(h *hospital) {
		var without func(map[string]any)
		h.Change(func(s *providertest.Settings) { without, s.TokenResponse = s.TokenResponse, nil })
		b, tokens := h.signIn("offline_access")
		h.Change(func(s *providertest.Settings) { s.TokenResponse = without })
		h.signInAgain(b)
		h.Change(func(s *providertest.Settings) { s.TokenResponse = nil })
		waitForSweep(2 * time.Hour)
		h.wantWorks(b, tokens)
		if len(h.sentRefreshTokens()) == 0 || len(h.Requests(providertest.Introspection)) > 1 {
			t.Errorf("%d requests with the refresh token, %d with the access token", len(h.sentRefreshTokens()), len(h.Requests(providertest.Introspection)))
		}
	})
}

// A denial in doubt, or by a suspended provider, remains in force after the access token has expired, so the person must
// sign in.
func TestDenialOutlastsAccessToken(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"in doubt": true, "suspended": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inIntrospecting(t, -1, func(h *hospital) {
				var all []*authorizetest.Browser
				for i := range 3 {
					h.admits(fmt.Sprint("person-", i))
					b, _ := h.signIn("online_access")
					all = append(all, b)
				}
				time.Sleep(time.Hour - relyingparty.Leeway - time.Minute)
				requests := 0
				h.SetFault(providertest.Introspection, func(w http.ResponseWriter, r *http.Request) {
					if requests++; silent && requests > 1 {
						providertest.Status(http.StatusBadGateway)(w, r)
						return
					}
					providertest.JSON(http.StatusOK, map[string]any{"active": false})(w, r)
				})
				if all[0].HasSession() {
					t.Fatal("still valid despite the denial")
				}
				time.Sleep(2 * time.Minute)
				for range 2 { // the first request may be redirected to the provider and not return
					if all[0].HasSession() {
						t.Error("still valid after the access token has expired")
					}
				}
			})
		})
	}
}
