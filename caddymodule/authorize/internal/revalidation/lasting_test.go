package revalidation_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Keycloak is asked for a refresh token that lasts only for an app with offline_access, apart from the sign-in, and once.
func TestLastingRefreshToken(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		inHospital(t, -1, nil, func(h *hospital) {
			h.Change(func(s *authorizetest.Settings) {
				s.Metadata["authorization_endpoint"] = "https://login.hospital.example/realms/h/protocol/openid-connect/auth"
			})
			b := servertest.NewBrowser(t, h.servers[0])
			// there goes to the provider, and returns the request there and where the browser is sent then.
			there := func(at *url.URL, answer url.Values) (url.Values, *url.URL) {
				if at.Host != "login.hospital.example" {
					t.Fatalf("not sent to the provider: %v", at)
				}
				if answer == nil {
					ask := *at
					ask.Path = string(authorizetest.Authorization)
					answer = h.Authorize(t, ask.String())
				}
				return at.Query(), servertest.Location(t, b.Get("/oauth2/callback/hospital?"+answer.Encode()))
			}
			request := func(scope string) *url.URL {
				q := servertest.ByProvider("hospital")
				q.Set("scope", "openid user/*.rs "+scope)
				return servertest.Location(t, b.Authorize(servertest.Request(q)))
			}
			first := request("online_access")
			if first.Host == "" {
				first = servertest.Location(t, b.Get(first.String()))
			}
			asked, at := there(first, nil)
			if strings.Contains(asked.Get("scope"), "offline_access") || !at.Query().Has("code") {
				t.Fatalf("sign-in: %v, then %v", asked, at)
			}
			apart := request("offline_access")
			var answer url.Values
			if refused {
				answer = url.Values{"error": {"invalid_scope"}, "state": {apart.Query().Get("state")}}
			}
			asked, at = there(apart, answer)
			if !strings.Contains(asked.Get("scope"), "offline_access") || asked.Has("prompt") || !at.Query().Has("code") {
				t.Errorf("apart: %v, then %v", asked, at)
			}
			if at := request("offline_access"); !at.Query().Has("code") {
				t.Errorf("asked again: %v", at)
			}
			h.wantWorks(b, b.Redeem(at))
		})
	}
}
