package revalidation_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// OpenID Connect Core §12.2: if the provider refreshes the sign-in of another person, client or issuer, access ends at once, whoever
// asks.
func TestAnotherSignInEndsAccess(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*providertest.IDToken){
		"another person": func(token *providertest.IDToken) { token.Claims["sub"] = "another" },
		"another client": providertest.WrongAudience,
		"another issuer": providertest.WrongIssuer,
	} {
		for how, ask := range map[string]func(*authorizetest.Browser, authorizetest.TokenResponse){
			"by the sweep": func(*authorizetest.Browser, authorizetest.TokenResponse) { after(interval) },
			"by an app": func(b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
				time.Sleep(11 * time.Second)
				b.Refresh(tokens.Refresh, nil)
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				inHospital(t, 2, nil, func(h *hospital) {
					b, tokens := h.signIn("offline_access")
					h.Change(func(s *providertest.Settings) { s.IDToken = change })
					ask(b, tokens)
					h.wantGone(b, tokens)
					if left := h.keys("upstream"); len(left) > 0 {
						t.Errorf("left: %q", left)
					}
				})
			})
		}
	}
}

// RFC 6749 §6: a refresh for more than was granted is refused before the provider is asked.
func TestRefreshForMoreAsksNothing(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		time.Sleep(interval)
		before := len(h.asked())
		if got := b.Refresh(tokens.Refresh, url.Values{"scope": {"user/*.cruds"}}); got.Error != "invalid_scope" || len(h.asked()) != before {
			t.Errorf("%+v, asked %d times", got, len(h.asked())-before)
		}
		if got := b.Refresh(tokens.Refresh, nil); got.AccessToken == "" {
			t.Errorf("%+v", got)
		}
	})
}
