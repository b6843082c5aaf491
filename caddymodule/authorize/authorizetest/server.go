package authorizetest

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

const (
	// Issuer is the issuer of servers in tests.
	Issuer = "https://fhir.example.org"

	// FHIRBase is the base URL of the FHIR server, and the aud of access tokens.
	FHIRBase = Issuer + "/fhir/R4"

	// Callback is the redirect URI of all clients.
	Callback = "https://app.example.org/callback"
)

// keys are shared by all servers, because generating and parsing RSA keys is slow. Their creation dates are in the future, so
// that they are not due for rotation in any test.
var keys = sync.OnceValue(func() *keyring.Keyring {
	storage, logger := new(providertest.Storage), slog.New(slog.DiscardHandler)
	if err := keyring.New(storage, "keys.json", logger).Refresh(context.Background()); err != nil {
		panic(err) // cannot fail in memory
	}
	created := regexp.MustCompile(`"created":"[^"]*"`)
	storage.Files["keys.json"] = created.ReplaceAll(storage.Files["keys.json"], []byte(`"created":"2100-01-01T00:00:00Z"`))
	return keyring.New(storage, "keys.json", logger)
})

// plainComparer compares passwords in plain text: the stored hash is the password itself.
type plainComparer struct{}

func (plainComparer) Compare(hash, password []byte) (bool, error) {
	return string(hash) == string(password), nil
}

// Config returns a configuration with the users alice (password: right) and bob (password: other), and several kinds of
// clients. [Request] uses the client app.
func Config() authorize.Config {
	return authorize.Config{
		Issuer: Issuer, FHIRBasePath: "/fhir/R4", Passwords: plainComparer{}, Logger: slog.New(slog.DiscardHandler),
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

// New returns a server with [Config] altered by change.
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

// HospitalProvider returns the configuration of the identity provider p with the key hospital.
func HospitalProvider(p *providertest.Provider) people.IdentityProvider {
	return people.IdentityProvider{
		Key: "hospital", Name: "General Hospital", Issuer: p.Issuer, Timeout: 10 * time.Second,
		ClientID: providertest.ClientID, ClientSecret: providertest.ClientSecret,
	}
}

// NewFederatedServer returns a server with the identity provider of [HospitalProvider], in addition to its local users.
func NewFederatedServer(t testing.TB, p *providertest.Provider, change func(*people.IdentityProvider, *authorize.Config)) *authorize.Server {
	return New(t, func(c *authorize.Config) {
		idp := HospitalProvider(p)
		if change != nil {
			change(&idp, c)
		}
		c.IdentityProviders = append([]people.IdentityProvider{idp}, c.IdentityProviders...)
	})
}

// AllowRefreshTokens permits refresh tokens for the clients of [Config].
func AllowRefreshTokens(c *authorize.Config) {
	for i := range c.Clients {
		if len(c.Clients[i].RedirectURIs) > 0 {
			c.Clients[i].Scopes = append(c.Clients[i].Scopes, "offline_access", "online_access")
		}
	}
}

// UseES256 selects ES256 for ID tokens. With RS256, signing would dominate the run time of tests with many ID tokens.
func UseES256(c *authorize.Config) {
	for i := range c.Clients {
		c.Clients[i].IDTokenAlgorithm = "ES256"
	}
}

// AllowAllFlows permits all response types, and the scope address, for the client app.
func AllowAllFlows(c *authorize.Config) {
	c.Clients[0].ResponseTypes = client.ResponseTypes
	c.Clients[0].Scopes = append(c.Clients[0].Scopes, "address")
}

// WithAllClaims sets all claims of OpenID Connect Core §5.1 for alice, and applies [AllowAllFlows].
func WithAllClaims(c *authorize.Config) {
	AllowAllFlows(c)
	c.Users[0].Claims = map[string]string{
		"family_name": "Adams", "given_name": "Alice", "middle_name": "B", "nickname": "Al", "profile": "https://alice.example/",
		"picture": "https://alice.example/p.png", "website": "https://alice.example/w", "gender": "female", "birthdate": "1980-02-29",
		"zoneinfo": "Europe/London", "locale": "en-GB", "updated_at": "1700000000", "phone_number_verified": "true",
		"address.formatted": "1 High St", "address.locality": "London",
	}
}

// WithResourceServer adds the client fhir-server, which may introspect all tokens.
func WithResourceServer(c *authorize.Config) {
	c.Clients = append(c.Clients, client.Client{ID: "fhir-server", Secret: "rs", IntrospectAll: true})
}

// TOTPSecret is the key of alice's authenticator app in [WithTOTP].
const TOTPSecret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"

// WithTOTP configures a second factor for alice.
func WithTOTP(c *authorize.Config) { c.Users[0].TOTPSecret = TOTPSecret }

// CurrentOTP returns the current code of alice's authenticator app.
func CurrentOTP() string { return OTP(TOTPSecret, time.Now()) }

// ErrStoreFailed is the error of a store returned by [NewFailingStore].
var ErrStoreFailed = errors.New("broken")

// NewFailingStore returns a memory store that fails while broken is true.
func NewFailingStore(broken *bool) store.Store {
	return storetest.NewInterceptedStore(func(string, string) error {
		if *broken {
			return ErrStoreFailed
		}
		return nil
	})
}

// NewReplica returns a replica of a store, to be used by a server for all its data.
func NewReplica(t testing.TB) (*storemirror.Replica, *storetest.Gateway) {
	t.Helper()
	g := storetest.NewSharedMemory(slices.Concat(store.MirroredKinds, store.CachedKinds)...).Gateway()
	r := storemirror.New(g, storemirror.Config{
		MirroredKinds: store.MirroredKinds, CachedKinds: store.CachedKinds, Logger: slog.New(slog.DiscardHandler),
	})
	r.SetMaxLag(time.Hour)
	go r.Run(t.Context())
	return r, g
}

// TakesNoRoundTrip reports whether do takes no round trip, once the replica has received the changes made in this process.
func TakesNoRoundTrip(g *storetest.Gateway, do func()) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		before := g.RoundTrips()
		if do(); g.RoundTrips() == before {
			return true
		}
		<-tick.C
	}
	return false
}
