package authorize_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
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
		{"an icon of an unknown provider", func(c *authorize.Config) { c.Branding.Icons = map[string]*page.Logo{"bakery": nil} }, `no idp has the key "bakery"`},
		{"a user without a hash", func(c *authorize.Config) { c.Users[0].PasswordHash = "" }, `"alice"`},
		{"a user twice", func(c *authorize.Config) { c.Users[1].ID = "alice" }, `user "alice" is configured twice`},
		{"a fhirUser that is a medication", func(c *authorize.Config) { c.Users[0].FHIRUser = "Medication/1" }, "Medication/1"},
		{"two users with an address that links", func(c *authorize.Config) {
			c.Users[1].Email, c.Users[1].EmailVerified = "ALICE@example.org", true
			c.IdentityProviders = []people.IdentityProvider{{Key: "h", Issuer: "https://h.example", ClientID: "x", LinkEmail: true}}
		}, "same verified e-mail"},
		{"an address with two @", func(c *authorize.Config) { c.Users[0].Email = "a@b@c" }, "a@b@c"},
		{"a SMART scope in a wrong order", func(c *authorize.Config) { c.Clients[0].Scopes = []string{"patient/*.sr"} }, "patient/*.sr"},
		{"a client twice", func(c *authorize.Config) { c.Clients[1].ID = "app" }, "duplicate client_id app"},
		{"a client named like a user", func(c *authorize.Config) { c.Clients[1].ID = "alice" }, "client_id alice is already the name of a user"},
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

// The server built from a draft has the added users and clients but not the removed ones. The original server is unchanged.
func TestDraft(t *testing.T) {
	t.Parallel()
	wendy := people.User{ID: "wendy", PasswordHash: "right", Email: "wendy@example.org", EmailVerified: true}
	chart := client.Client{ID: "chart", RedirectURIs: []string{"https://chart.example/callback"}, Scopes: []string{"chart.read"}}
	before := authorizetest.New(t, nil)
	draft := before.Draft()
	for name, err := range map[string]error{"a user": draft.AddUser(wendy), "a client": draft.AddClient(chart)} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"the user again": draft.AddUser(wendy), "the client again": draft.AddClient(chart),
		"a user named like a client": draft.AddUser(people.User{ID: "chart", PasswordHash: "x"}),
		"a client named like a user": draft.AddClient(client.Client{ID: "wendy"}),
		"a client of an unknown idp": draft.AddClient(client.Client{ID: "x", IdentityProviders: []string{"nowhere"}}),
		"a user without a password":  draft.AddUser(people.User{ID: "x"}),
		"invalid user name":          draft.AddUser(people.User{ID: "x\n", PasswordHash: "x"}),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	with, err := draft.Server()
	if err != nil {
		t.Fatal(err)
	}
	removing := with.Draft()
	removing.RemoveUser("wendy")
	removing.RemoveClient("chart")
	removing.RemoveClient("chart")
	without, err := removing.Server()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		server *authorize.Server
		want   bool
	}{"before": {before, false}, "with them": {with, true}, "without them": {without, false}} {
		if got := tt.server.AllowsOrigin("https://chart.example"); got != tt.want {
			t.Errorf("%s: the client's origin: %v", name, got)
		}
		if got, err := tt.server.Clients().Find(t.Context(), "chart"); (got != nil) != tt.want || err != nil {
			t.Errorf("%s: the client: %v, %v", name, got, err)
		}
		meant, err := tt.server.DescribePerson(t.Context(), "Wendy@example.org")
		if got := strings.HasPrefix(meant, "local:wendy"); got != tt.want || err != nil {
			t.Errorf("%s: the user's address means %q, %v", name, meant, err)
		}
		b := authorizetest.NewBrowser(t, tt.server)
		metadata := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
		if got := slices.Contains(metadata["scopes_supported"].([]any), any("chart.read")); got != tt.want {
			t.Errorf("%s: scopes %v", name, metadata["scopes_supported"])
		}
		signedIn := b.SignIn(authorizetest.Request(nil), "wendy", "right").StatusCode
		if got := signedIn == http.StatusFound || signedIn == http.StatusSeeOther; got != tt.want {
			t.Errorf("%s: the user signs in: %d", name, signedIn)
		}
	}
}

// The server built from a draft reuses cached discovery documents. After a change of users, sign-in works even if a provider's
// discovery endpoint is down.
func TestDraftKeepsProviders(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	server := authorizetest.NewFederatedServer(t, p, nil)
	b := authorizetest.NewBrowser(t, server)
	begin := func() *http.Response {
		return authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
	}
	authorizetest.Location(t, begin())
	p.SetFault(providertest.Discovery, providertest.Status(http.StatusServiceUnavailable))
	var err error
	if b.Server, err = server.Draft().Server(); err != nil {
		t.Fatal(err)
	}
	if at := authorizetest.Location(t, begin()); !strings.HasPrefix(at.String(), p.Issuer) {
		t.Errorf("not sent to the provider: %v", at)
	}
}
