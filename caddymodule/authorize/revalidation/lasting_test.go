package revalidation_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// keycloakBrowser is a browser that goes to a provider like Keycloak.
type keycloakBrowser struct {
	*authorizetest.Browser
	h *hospital
}

// request sends an authorization request, and returns where the browser is sent.
func (b keycloakBrowser) request(scope string) *url.URL {
	q := authorizetest.ByProvider("hospital")
	q.Set("scope", "openid user/*.rs "+scope)
	at := authorizetest.Location(b.h.t, b.Authorize(authorizetest.Request(q)))
	if at.Host == "" {
		at = authorizetest.Location(b.h.t, b.Get(at.String()))
	}
	return at
}

// answer is what the provider answers to a request; returned is where an answer leads.
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

// Keycloak is asked for a refresh token that lasts only for an app with offline_access, apart from the sign-in, and once.
func TestLastingRefreshToken(t *testing.T) {
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
				b.h.t.Fatalf("asked again: %v", at)
			}
			b.h.wantWorks(b.Browser, b.Redeem(at))
		})
	}
}

// What was asked for one session goes on with no other, however it comes into the browser.
func TestLastingIsOfItsSession(t *testing.T) {
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
