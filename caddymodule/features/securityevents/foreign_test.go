package securityevents_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// pushAbout sends a Security Event Token that the clinic signed.
func pushAbout(c authorizetest.Clinic, name string, subject map[string]any) {
	c.T.Helper()
	if r := push(c.T, c.Server, "/oauth2/events/clinic", event(c.Provider, name, providertest.Saying("sub_id", subject))); r.StatusCode != http.StatusAccepted {
		c.T.Errorf("%s %v: %d %s", name, subject, r.StatusCode, authorizetest.Body(c.T, r))
	}
}

// An identity provider that names another provider's person by any identifier of theirs ends nothing of that person:
// Security Event Tokens (RFC 8417) and logout tokens.
func TestPersonOfAnotherProvider(t *testing.T) {
	t.Parallel()
	authorizetest.CheckForeignProvider(t, refreshing, map[string]func(c authorizetest.Clinic, name string){
		"event by opaque id": func(c authorizetest.Clinic, name string) {
			pushAbout(c, risc+"account-purged", map[string]any{"format": "opaque", "id": name})
		},
		"event by issuer and subject": func(c authorizetest.Clinic, name string) {
			pushAbout(c, risc+"account-disabled", map[string]any{"format": "iss_sub", "iss": c.Provider.Issuer, "sub": name})
		},
		"event by address": func(c authorizetest.Clinic, name string) {
			pushAbout(c, risc+"account-disabled", map[string]any{"format": "email", "email": name})
		},
		"event about sessions": func(c authorizetest.Clinic, name string) {
			pushAbout(c, caep+"session-revoked", map[string]any{"format": "opaque", "id": name})
		},
		"event about sessions by address": func(c authorizetest.Clinic, name string) {
			pushAbout(c, caep+"session-revoked", map[string]any{"format": "email", "email": name})
		},
		"event about a session": func(c authorizetest.Clinic, _ string) {
			pushAbout(c, caep+"session-revoked", map[string]any{"format": "complex", "session": map[string]any{"format": "opaque", "id": authorizetest.HospitalSession}})
		},
		"logout token": func(c authorizetest.Clinic, name string) {
			token := c.Provider.LogoutToken(providertest.Saying("sub", name), providertest.Saying("sid", authorizetest.HospitalSession))
			if r := authorizetest.NewBrowser(c.T, c.Server).Post("/oauth2/backchannel_logout/clinic", url.Values{"logout_token": {token}}); r.StatusCode >= 300 {
				c.T.Errorf("logout token: %d", r.StatusCode)
			}
		},
	})
}
