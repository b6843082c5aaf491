package deprovisioning_test

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
	aliceUserName    = "Alice@Hospital.example" // see named
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

// scim sends a SCIM request with the clinic's own token and returns the id of the User in the response.
func (c clinic) scim(method, target, body string) (id string) {
	c.t.Helper()
	r := servertest.PostRequest(target, nil)
	r.Method = method
	r.Header.Set("Content-Type", "application/scim+json")
	r.Header.Set("Authorization", "Bearer "+clinicSecret)
	response := send(c.t, c.s, r, body)
	if response.StatusCode >= 300 {
		c.t.Errorf("%s %s: %d %s", method, target, response.StatusCode, servertest.Body(c.t, response))
		return ""
	}
	if response.StatusCode == http.StatusNoContent {
		return ""
	}
	id, _ = servertest.Decode[map[string]any](c.t, response)["id"].(string)
	return id
}

// push sends a Security Event Token that the clinic signed.
func (c clinic) push(name string, subject map[string]any) {
	c.t.Helper()
	if r := push(c.t, c.s, clinicEvents, event(c.p, name, saying("sub_id", subject))); r.StatusCode != http.StatusAccepted {
		c.t.Errorf("%s %v: %d %s", name, subject, r.StatusCode, servertest.Body(c.t, r))
	}
}

// An identity provider that names another provider's person by any identifier of theirs ends nothing of that person:
// SCIM (RFC 7644), Security Event Tokens (RFC 8417) and logout tokens.
func TestPersonOfAnotherProvider(t *testing.T) {
	t.Parallel()
	const members = `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{"op":"replace","path":"active","value":false}]}`
	attacks := map[string]func(c clinic, name string){
		"SCIM DELETE by externalId": func(c clinic, name string) {
			c.scim(http.MethodDelete, clinicSCIM+"/"+c.scim(http.MethodPost, clinicSCIM, `{"externalId":"`+name+`"}`), "")
		},
		"SCIM DELETE by userName": func(c clinic, name string) {
			c.scim(http.MethodDelete, clinicSCIM+"/"+c.scim(http.MethodPost, clinicSCIM, `{"userName":"`+name+`"}`), "")
		},
		"SCIM PATCH": func(c clinic, name string) {
			c.scim(http.MethodPatch, clinicSCIM+"/"+c.scim(http.MethodPost, clinicSCIM, `{"userName":"x","externalId":"`+name+`"}`), members)
		},
		"SCIM PUT of another name": func(c clinic, name string) {
			c.scim(http.MethodPut, clinicSCIM+"/"+c.scim(http.MethodPost, clinicSCIM, `{"userName":"x"}`), `{"userName":"`+name+`","externalId":"`+name+`","active":false}`)
		},
		"SCIM POST of an inactive User": func(c clinic, name string) {
			c.scim(http.MethodPost, clinicSCIM, `{"userName":"`+name+`","externalId":"`+name+`","active":false}`)
		},
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
			token := c.p.LogoutToken(saying("sub", name), saying("sid", hospitalSession))
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
				s := servertest.NewFederated(t, authorizetest.Start(t, named, func(s *authorizetest.Settings) { s.IDToken = saying("sid", hospitalSession) }),
					func(idp *people.IdentityProvider, c *authorize.Config) {
						withSCIM(idp, c)
						idp.Sub = sub
						second := servertest.Hospital(other)
						second.Key, second.SCIM, second.Sub = "clinic", clinicSecret, sub
						c.IdentityProviders = append(c.IdentityProviders, second)
					})
				alice := signIn(t, s)
				for _, name := range []string{alice.sub, authorizetest.Alice.Subject, aliceUserName, aliceEmail, aliceEmployeeOID} {
					run(clinic{t, other, s}, name)
					if left := alice.left(); left != "all" {
						t.Fatalf("%q: left: %s", name, left)
					}
				}
			})
		}
	}
}
