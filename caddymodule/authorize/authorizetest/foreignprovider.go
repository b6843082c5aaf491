package authorizetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// HospitalSession is the id of Alice's session at the hospital, in attacks by the clinic.
const HospitalSession = "one"

// Clinic is a second identity provider, with the key clinic, of the server that a test attacks with.
type Clinic struct {
	T        *testing.T             // the test of one attack
	Provider *providertest.Provider // the provider's own server
	Server   http.Handler           // the attacked authorization server
}

// CheckForeignProvider checks that a provider that names another provider's person, by any identifier of theirs, ends nothing of
// that person. The server is configured by change, called with the provider of Alice.
func CheckForeignProvider(t *testing.T, change func(*people.IdentityProvider, *authorize.Config), attacks map[string]func(c Clinic, name string)) {
	t.Helper()
	for _, sub := range []string{"", "oid"} { // the claim that is the sub here
		for attack, run := range attacks {
			t.Run(strings.TrimSuffix(attack+" sub "+sub, " sub "), func(t *testing.T) {
				t.Parallel()
				other := providertest.Start(t)
				s := NewFederated(t, providertest.Start(t, Named, func(s *providertest.Settings) { s.IDToken = providertest.Saying("sid", HospitalSession) }),
					func(idp *people.IdentityProvider, c *authorize.Config) {
						change(idp, c)
						idp.Sub = sub
						second := Hospital(other)
						second.Key, second.Sub = "clinic", sub
						c.IdentityProviders = append(c.IdentityProviders, second)
					})
				alice := SignInFederated(t, s)
				for _, name := range []string{alice.Sub, providertest.Alice.Subject, "Alice@Hospital.example", "a.adams@hospital.example", "0b1"} { // see Named
					run(Clinic{t, other, s}, name)
					if left := alice.Left(); left != "all" {
						t.Fatalf("%q: left: %s", name, left)
					}
				}
			})
		}
	}
}
