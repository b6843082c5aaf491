package scim_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/scim"
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

// scim sends a SCIM request with the clinic's own token and returns the id of the User in the response.
func (c clinic) scim(method, target, body string) (id string) {
	c.t.Helper()
	r := servertest.PostRequest(target, nil)
	r.Method = method
	r.Header.Set("Content-Type", "application/scim+json")
	r.Header.Set("Authorization", "Bearer "+clinicSecret)
	response := servertest.SendBody(c.t, c.s, r, body)
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

// An identity provider that names another provider's person by any identifier of theirs ends nothing of that person:
// SCIM (RFC 7644).
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
	}
	for _, sub := range []string{"", "oid"} { // the claim that is the sub here
		for attack, run := range attacks {
			t.Run(strings.TrimSuffix(attack+" sub "+sub, " sub "), func(t *testing.T) {
				t.Parallel()
				other := authorizetest.Start(t)
				s := servertest.NewFederated(t, authorizetest.Start(t, servertest.Named, func(s *authorizetest.Settings) { s.IDToken = authorizetest.Saying("sid", hospitalSession) }),
					func(idp *people.IdentityProvider, c *authorize.Config) {
						withSCIM(idp, c)
						idp.Sub = sub
						second := servertest.Hospital(other)
						second.Key, second.Sub = "clinic", sub
						c.Features = append(c.Features, &scim.SCIM{Token: clinicSecret, Provider: "clinic"})
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
