package authorizetest

import (
	"context"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
)

const (
	// Issuer is the server's.
	Issuer = "https://fhir.example.org"

	// FHIRBase is the address of the FHIR API that access tokens are for.
	FHIRBase = Issuer + "/fhir/R4"

	// Callback is the redirect URI of all clients.
	Callback = "https://app.example.org/callback"
)

// keys are those of all servers, because making an RSA key takes long, and reading one is
// not free. They are dated in the future, so that no test's clock finds them due for renewal.
var keys = sync.OnceValue(func() *keyring.Keyring {
	storage, logger := new(providertest.Storage), slog.New(slog.DiscardHandler)
	if err := keyring.New(storage, "keys.json", logger).Refresh(context.Background()); err != nil {
		panic(err) // nothing fails in memory
	}
	created := regexp.MustCompile(`"created":"[^"]*"`)
	storage.Files["keys.json"] = created.ReplaceAll(storage.Files["keys.json"], []byte(`"created":"2100-01-01T00:00:00Z"`))
	return keyring.New(storage, "keys.json", logger)
})

// plain compares passwords that are their own hash.
type plain struct{}

func (plain) Compare(hash, password []byte) (bool, error) {
	return string(hash) == string(password), nil
}

// Config has the users alice (password: right) and bob (other), and clients of several
// kinds, of which app is the one that [Request] names.
func Config() authorize.Config {
	return authorize.Config{
		Issuer: Issuer, FHIRBasePath: "/fhir/R4", Passwords: plain{}, Logger: slog.New(slog.DiscardHandler),
		Keys:  keys(),
		Store: store.NewMemory(0, 0),
		Users: []people.User{{
			ID: "alice", PasswordHash: "right", Name: "Alice Adams", Email: "alice@example.org",
			EmailVerified: true, Phone: "+15550100", FHIRUser: "Practitioner/alice",
		}, {ID: "bob", PasswordHash: "other"}},
		Clients: []client.Client{{
			ID: "app", Name: "The App", RedirectURIs: []string{"http://localhost:3000/callback", Callback},
			Scopes: []string{"demo.read", "fhirUser", "user/*.rs"}, ResponseTypes: []string{"code", "token"},
			PKCE: client.PKCEOptional,
		}, {
			ID: "confidential", Secret: "s3cret/+ %", RedirectURIs: []string{Callback + "?tenant=1"},
		}, {
			ID: "strict", RedirectURIs: []string{Callback}, PKCE: client.PKCERequired,
		}, {
			ID: "implicit", RedirectURIs: []string{Callback}, ResponseTypes: []string{"token"},
		}, {
			ID: "service", Secret: "hush", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs", "demo.read"},
		}},
	}
}

// New makes a server of [Config], as altered by change.
func New(t testing.TB, change func(*authorize.Config)) *authorize.Server {
	t.Helper()
	c := Config()
	if change != nil {
		change(&c)
	}
	s, err := authorize.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Hospital is the configuration of a provider, by the key hospital.
func Hospital(p *providertest.Provider) people.IdentityProvider {
	return people.IdentityProvider{
		Key: "hospital", Name: "General Hospital", Issuer: p.Issuer, Timeout: 10 * time.Second,
		ClientID: providertest.ClientID, ClientSecret: providertest.ClientSecret,
	}
}

// NewFederated makes a server with one provider, [Hospital], beside its local users.
func NewFederated(t testing.TB, p *providertest.Provider, change func(*people.IdentityProvider, *authorize.Config)) *authorize.Server {
	return New(t, func(c *authorize.Config) {
		idp := Hospital(p)
		if change != nil {
			change(&idp, c)
		}
		c.IdentityProviders = append([]people.IdentityProvider{idp}, c.IdentityProviders...)
	})
}
