package scim_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/scim"
)

const (
	clinicSecret = "0c7e1a52f39d4c18b6a0e47d2f8c915be3a4d6f70819c2b5"
	clinicSCIM   = "/oauth2/scim/clinic/Users"
)

// send sends a SCIM request with the clinic's own token and returns the id of the User in the response.
func send(c authorizetest.Clinic, method, target, body string) (id string) {
	c.T.Helper()
	r := authorizetest.PostRequest(target, nil)
	r.Method = method
	r.Header.Set("Content-Type", "application/scim+json")
	r.Header.Set("Authorization", "Bearer "+clinicSecret)
	response := authorizetest.SendBody(c.T, c.Server, r, body)
	if response.StatusCode >= 300 {
		c.T.Errorf("%s %s: %d %s", method, target, response.StatusCode, authorizetest.Body(c.T, response))
		return ""
	}
	if response.StatusCode == http.StatusNoContent {
		return ""
	}
	id, _ = authorizetest.Decode[map[string]any](c.T, response)["id"].(string)
	return id
}

// An identity provider that names another provider's person by any identifier of theirs ends nothing of that person:
// SCIM (RFC 7644).
func TestPersonOfAnotherProvider(t *testing.T) {
	t.Parallel()
	const members = `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{"op":"replace","path":"active","value":false}]}`
	authorizetest.CheckForeignProvider(t, func(idp *people.IdentityProvider, c *authorize.Config) {
		withSCIM(idp, c)
		c.Features = append(c.Features, &scim.SCIM{Token: clinicSecret, Provider: "clinic"})
	}, map[string]func(c authorizetest.Clinic, name string){
		"SCIM DELETE by externalId": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodDelete, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"externalId":"`+name+`"}`), "")
		},
		"SCIM DELETE by userName": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodDelete, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"userName":"`+name+`"}`), "")
		},
		"SCIM PATCH": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodPatch, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"userName":"x","externalId":"`+name+`"}`), members)
		},
		"SCIM PUT of another name": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodPut, clinicSCIM+"/"+send(c, http.MethodPost, clinicSCIM, `{"userName":"x"}`), `{"userName":"`+name+`","externalId":"`+name+`","active":false}`)
		},
		"SCIM POST of an inactive User": func(c authorizetest.Clinic, name string) {
			send(c, http.MethodPost, clinicSCIM, `{"userName":"`+name+`","externalId":"`+name+`","active":false}`)
		},
	})
}
