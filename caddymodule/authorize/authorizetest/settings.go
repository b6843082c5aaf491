package authorizetest

import (
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// Refreshing lets the clients of [Config] have refresh tokens.
func Refreshing(c *authorize.Config) {
	for i := range c.Clients {
		if len(c.Clients[i].RedirectURIs) > 0 {
			c.Clients[i].Scopes = append(c.Clients[i].Scopes, "offline_access", "online_access")
		}
	}
}

// SigningFast has the clients get ID tokens by ES256, where a test gets so many that RS256 would take most of its time.
func SigningFast(c *authorize.Config) {
	for i := range c.Clients {
		c.Clients[i].IDTokenAlgorithm = "ES256"
	}
}

// EveryFlow lets the client app use all response types, and have addresses.
func EveryFlow(c *authorize.Config) {
	c.Clients[0].ResponseTypes = client.ResponseTypes
	c.Clients[0].Scopes = append(c.Clients[0].Scopes, "address")
}

// WholePerson gives alice all claims of OpenID Connect Core §5.1, and app [EveryFlow].
func WholePerson(c *authorize.Config) {
	EveryFlow(c)
	c.Users[0].Claims = map[string]string{
		"family_name": "Adams", "given_name": "Alice", "middle_name": "B", "nickname": "Al", "profile": "https://alice.example/",
		"picture": "https://alice.example/p.png", "website": "https://alice.example/w", "gender": "female", "birthdate": "1980-02-29",
		"zoneinfo": "Europe/London", "locale": "en-GB", "updated_at": "1700000000", "phone_number_verified": "true",
		"address.formatted": "1 High St", "address.locality": "London",
	}
}

// ResourceServer adds a client, fhir-server, that may introspect all tokens.
func ResourceServer(c *authorize.Config) {
	c.Clients = append(c.Clients, client.Client{ID: "fhir-server", Secret: "rs", IntrospectAll: true})
}

// TOTPSecret is the key of the authenticator app that [WithTOTP] gives alice.
const TOTPSecret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"

// WithTOTP gives alice a second factor.
func WithTOTP(c *authorize.Config) { c.Users[0].TOTPSecret = TOTPSecret }

// CodeNow is what alice's authenticator app shows now.
func CodeNow() string { return OTP(TOTPSecret, time.Now()) }

// ErrBroken is what a store fails with that [Failing] made.
var ErrBroken = errors.New("broken")

// Failing is a store in memory that fails while broken says so.
func Failing(broken *bool) store.Store {
	return storetest.NewIntercepted(func(string, string) error {
		if *broken {
			return ErrBroken
		}
		return nil
	})
}
