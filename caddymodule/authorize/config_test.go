package authorize_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	ofClient := func(change func(*client.Client)) func(*authorize.Config) {
		return func(c *authorize.Config) { change(&c.Clients[0]) }
	}
	tests := []struct {
		name   string
		change func(*authorize.Config)
		want   string
	}{
		{"issuer over http", func(c *authorize.Config) { c.Issuer = "http://fhir.example.org" }, "issuer"},
		{"issuer with a path", func(c *authorize.Config) { c.Issuer = authorizetest.Issuer + "/" }, "issuer"},
		{"issuer with a query", func(c *authorize.Config) { c.Issuer = authorizetest.Issuer + "?a" }, "issuer"},
		{"issuer in upper case", func(c *authorize.Config) { c.Issuer = "https://FHIR.example.org" }, "issuer"},
		{"issuer with a user", func(c *authorize.Config) { c.Issuer = "https://a@fhir.example.org" }, "issuer"},
		{"a lifetime below a second", func(c *authorize.Config) { c.AccessTokenLifetime = time.Millisecond }, "access_token_lifetime"},
		{"tokens for longer than keys are kept", func(c *authorize.Config) { c.AccessTokenLifetime = 48 * time.Hour }, "access_token_lifetime"},
		{"a user without a hash", func(c *authorize.Config) { c.Users[0].PasswordHash = "" }, `"alice"`},
		{"a user twice", func(c *authorize.Config) { c.Users[1].ID = "alice" }, "duplicate user alice"},
		{"a fhirUser that is a medication", func(c *authorize.Config) { c.Users[0].FHIRUser = "Medication/1" }, "Medication/1"},
		{"two users with an address that links", func(c *authorize.Config) {
			c.Users[1].Email, c.Users[1].EmailVerified = "ALICE@example.org", true
			c.IdentityProviders = []people.IdentityProvider{{Key: "h", Issuer: "https://h.example", ClientID: "x", LinkEmail: true}}
		}, "same verified e-mail"},
		{"an address with two @", func(c *authorize.Config) { c.Users[0].Email = "a@b@c" }, "a@b@c"},
		{"a SMART scope in a wrong order", func(c *authorize.Config) { c.Clients[0].Scopes = []string{"patient/*.sr"} }, "patient/*.sr"},
		{"a client twice", func(c *authorize.Config) { c.Clients[1].ID = "app" }, "duplicate client app"},
		{"a client named like a user", func(c *authorize.Config) { c.Clients[1].ID = "alice" }, "client alice has the name of a user"},
		{"a client without an id", ofClient(func(c *client.Client) { c.ID = "" }), "id"},
		{"a redirect URI over http", ofClient(func(c *client.Client) { c.RedirectURIs[0] = "http://app.example.org" }), `redirect_uri "http://app.example.org" must`},
		{"a post-logout redirect URI over http", ofClient(func(c *client.Client) { c.PostLogoutRedirectURIs = []string{"http://app.example.org"} }), `: post_logout_redirect_uri "http://app.example.org" must`},
		{"a scope with a space", ofClient(func(c *client.Client) { c.Scopes = []string{"a b"} }), "a b"},
		{"an unknown response type", ofClient(func(c *client.Client) { c.ResponseTypes = []string{"magic"} }), "magic"},
		{"an unknown grant type", ofClient(func(c *client.Client) { c.GrantTypes = []string{"password"} }), "password"},
		{"a flow that leads nowhere", ofClient(func(c *client.Client) { c.RedirectURIs = nil }), "redirect_uri"},
		{"client_credentials of a public client", ofClient(func(c *client.Client) { c.GrantTypes = []string{"client_credentials"} }), "secret"},
		{"codes that cannot be had", ofClient(func(c *client.Client) {
			c.ResponseTypes, c.GrantTypes = []string{"token"}, []string{"authorization_code"}
		}), "authorization_code"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := authorizetest.Config()
			tt.change(&c)
			if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %s", err, tt.want)
			}
		})
	}
}
