package securityevents_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

const (
	clinicSecret     = "0c7e1a52f39d4c18b6a0e47d2f8c915be3a4d6f70819c2b5"
	clinicSCIM       = "/oauth2/scim/clinic/Users"
	clinicEvents     = "/oauth2/events/clinic"
	clinicLogout     = "/oauth2/backchannel_logout/clinic"
	aliceUserName    = "Alice@Hospital.example" // see servertest.Named
	aliceEmail       = "a.adams@hospital.example"
	hospitalSession  = "one"
	aliceEmployeeOID = "0b1"
)

// clinic is a second identity provider of the server that a test attacks with.
type clinic struct {
	t *testing.T
	p *authorizetest.Provider
	s http.Handler
}

// push sends a Security Event Token that the clinic signed.
func (c clinic) push(name string, subject map[string]any) {
	c.t.Helper()
	if r := push(c.t, c.s, clinicEvents, event(c.p, name, authorizetest.Saying("sub_id", subject))); r.StatusCode != http.StatusAccepted {
		c.t.Errorf("%s %v: %d %s", name, subject, r.StatusCode, servertest.Body(c.t, r))
	}
}

// An identity provider that names another provider's person by any identifier of theirs ends nothing of that person:
// Security Event Tokens (RFC 8417) and logout tokens.
func TestPersonOfAnotherProvider(t *testing.T) {
	t.Parallel()
	attacks := map[string]func(c clinic, name string){
		"event by opaque id": func(c clinic, name string) {
			c.push(risc+"account-purged", map[string]any{"format": "opaque", "id": name})
		},
		"event by issuer and subject": func(c clinic, name string) {
			c.push(risc+"account-disabled", map[string]any{"format": "iss_sub", "iss": c.p.Issuer, "sub": name})
		},
		"event by address": func(c clinic, name string) {
			c.push(risc+"account-disabled", map[string]any{"format": "email", "email": name})
		},
		"event about sessions": func(c clinic, name string) {
			c.push(caep+"session-revoked", map[string]any{"format": "opaque", "id": name})
		},
		"event about sessions by address": func(c clinic, name string) {
			c.push(caep+"session-revoked", map[string]any{"format": "email", "email": name})
		},
		"event about a session": func(c clinic, _ string) {
			c.push(caep+"session-revoked", map[string]any{"format": "complex", "session": map[string]any{"format": "opaque", "id": hospitalSession}})
		},
		"logout token": func(c clinic, name string) {
			token := c.p.LogoutToken(authorizetest.Saying("sub", name), authorizetest.Saying("sid", hospitalSession))
			if r := servertest.NewBrowser(c.t, c.s).Post(clinicLogout, url.Values{"logout_token": {token}}); r.StatusCode >= 300 {
				c.t.Errorf("logout token: %d", r.StatusCode)
			}
		},
	}
	for _, sub := range []string{"", "oid"} { // the claim that is the sub here
		for attack, run := range attacks {
			t.Run(strings.TrimSuffix(attack+" sub "+sub, " sub "), func(t *testing.T) {
				t.Parallel()
				other := authorizetest.Start(t)
				s := servertest.NewFederated(t, authorizetest.Start(t, servertest.Named, func(s *authorizetest.Settings) { s.IDToken = authorizetest.Saying("sid", hospitalSession) }),
					func(idp *people.IdentityProvider, c *authorize.Config) {
						refreshing(idp, c)
						idp.Sub = sub
						second := servertest.Hospital(other)
						second.Key, second.Sub = "clinic", sub
						c.IdentityProviders = append(c.IdentityProviders, second)
					})
				alice := servertest.SignInFederated(t, s)
				for _, name := range []string{alice.Sub, authorizetest.Alice.Subject, aliceUserName, aliceEmail, aliceEmployeeOID} {
					run(clinic{t, other, s}, name)
					if left := alice.Left(); left != "all" {
						t.Fatalf("%q: left: %s", name, left)
					}
				}
			})
		}
	}
}
