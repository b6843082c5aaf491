package revalidation_test

import (
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// inBoundHospital runs a test with a provider whose refresh tokens are bound to the person's session there, and that
// introspects them, or does not.
func inBoundHospital(t *testing.T, introspects bool, test func(*hospital)) {
	t.Helper()
	inHospital(t, 2, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.Metadata["scopes_supported"] = []string{"openid", "profile", "email"}
			if introspects {
				s.Metadata["introspection_endpoint"] = h.Issuer + string(providertest.Introspection)
			}
		})
		test(h)
	})
}

// Checks in the background do not use the refresh token of who is inactive here: that would keep them signed in there.
func TestBackgroundIsNoActivity(t *testing.T) {
	t.Parallel()
	for _, introspects := range []bool{true, false} {
		inBoundHospital(t, introspects, func(h *hospital) {
			b, tokens := h.signIn("online_access")
			before := len(h.Requests(providertest.Introspection))
			after(6 * interval)
			authorizetest.Equal(t, len(h.asked()), 0, "refreshed in the background")
			if got := len(h.Requests(providertest.Introspection)) > before; got != introspects {
				t.Errorf("introspected: %v, want %v", got, introspects)
			}
			h.wantWorks(b, tokens)
		})
	}
}

// After activity, one check uses the refresh token.
func TestActivityReachesProvider(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*authorizetest.Browser, *authorizetest.TokenResponse){
		"a visit": func(b *authorizetest.Browser, _ *authorizetest.TokenResponse) { b.SignedIn() },
		"a refresh": func(b *authorizetest.Browser, tokens *authorizetest.TokenResponse) {
			*tokens = b.Refresh(tokens.Refresh, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBoundHospital(t, true, func(h *hospital) {
				b, tokens := h.signIn("online_access")
				time.Sleep(2 * time.Minute)
				act(b, &tokens)
				after(6 * interval)
				if got := len(h.asked()); got != 1 {
					t.Errorf("refreshed %d times, want once", got)
				}
			})
		})
	}
}

// Who is inactive here and is disabled, or signed out, there loses what they have within the interval.
func TestInactivePersonEnds(t *testing.T) {
	t.Parallel()
	for _, lasting := range []string{"offline_access", "online_access"} {
		inBoundHospital(t, true, func(h *hospital) {
			b, tokens := h.signIn(lasting)
			after(6 * interval)
			h.becomes(nil)
			after(interval)
			if b.TokenWorks(tokens.AccessToken) {
				t.Error("the access token goes on")
			}
			h.wantGone(b, tokens)
			authorizetest.Equal(t, len(h.asked()), 0, "refreshed")
		})
	}
}
