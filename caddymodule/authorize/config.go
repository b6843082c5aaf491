package authorize

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
)

// Defaults and bounds of the lifetimes in [Config].
const (
	defaultAccessTokenLifetime = time.Hour
	codeLifetime               = 5 * time.Minute // of authorization codes; the interface fixes it
	DefaultSessionLifetime     = 8 * time.Hour

	// DefaultRefreshTokenLifetime is the minimum of ONC's criterion for standardized APIs:
	// three months.
	DefaultRefreshTokenLifetime = 90 * 24 * time.Hour

	DefaultRefreshTokenGrace = 10 * time.Second     // lets a client time out and try again
	maxRefreshTokenLifetime  = 366 * 24 * time.Hour // people sign in at least once a year
	maxRefreshTokenGrace     = time.Minute          // what is repeated later is no accident
	MaxAccessTokenLifetime   = keyring.Retention    // replaced keys stay published as long
	maxSessionLifetime       = 30 * 24 * time.Hour  // a forgotten sign-in must end
)

// maxLifetimes are by their names in a configuration.
var maxLifetimes = map[string]time.Duration{
	"access_token_lifetime":       MaxAccessTokenLifetime,
	"session_lifetime":            maxSessionLifetime,
	"session_idle":                maxSessionLifetime,
	"refresh_token_lifetime":      maxRefreshTokenLifetime,
	"refresh_token_idle_lifetime": maxRefreshTokenLifetime,
	"refresh_token_grace":         maxRefreshTokenGrace,
}

// MaxLifetime returns the maximum of a lifetime by its name in a configuration, such as session_lifetime.
func MaxLifetime(name string) time.Duration { return maxLifetimes[name] }

// CheckLifetime returns an error if a lifetime is out of bounds. Its name is that in a
// configuration, such as session_lifetime.
func CheckLifetime(name string, lifetime time.Duration) error {
	return oauth2.CheckLifetime(name, lifetime, maxLifetimes[name])
}

// Config is the configuration of a [Server].
type Config struct {
	Issuer       string // our own address, https://host[:port], and the iss of tokens (RFC 8414 §2)
	FHIRBasePath string // the path of the FHIR API. Issuer and path are the aud of tokens.

	Clients           []client.Client           // registered by the operator
	Users             []people.User             // local users
	IdentityProviders []people.IdentityProvider // first contacted at the first sign-in

	// Known is asked about a client or person who is not known, and says why there may be more than
	// Clients and Users, if so. Default: there are no more.
	Known func(context.Context) error

	ScopeLimits []scopelimit.Row        // which scopes people may have. Default: all.
	Passwords   people.PasswordComparer // checks passwords of Users
	Keys        keyring.Keys            // sign tokens and seal pending requests

	// Store keeps codes, pending second factors, and the revocations that each check of an
	// access token reads.
	Store store.Store

	// Durable keeps what must outlive a restart: sessions, refresh tokens, consents,
	// lockouts, and a copy of the revocations. Default: Store.
	Durable store.Store

	// Audit gets every [audit.Event], in the goroutine of its request. Default: an
	// [audit.Log] on Logger.
	Audit func(context.Context, audit.Event)

	// ClientAddress is the IP address that a request is counted and recorded under.
	// Default: that of the peer.
	ClientAddress func(*http.Request) string

	// Records asks the FHIR server in a person's name, for the pages on which they choose a
	// patient. Default: none can be chosen there.
	Records launch.Records

	// Checks are the latest results of checks with identity providers. They outlive this server. Default: empty.
	Checks *revalidation.Checks

	// CountToken counts a request to the token endpoint, first without a client, and again when its client is known; public is
	// one without secret or key. An error refuses the request. Default: none is.
	CountToken func(w http.ResponseWriter, r *http.Request, clientID string, public bool) error

	Lockout lockout.Policy // slows down guessing. Its counts are in Durable.

	Branding page.Branding // makes the pages look like a site's own

	// FrameAncestors are the origins of EHRs that open apps in frames, and may so frame the pages
	// of an authorization request. Default: none.
	FrameAncestors []string

	// AccessTokenLifetime is that of access and ID tokens. Default:
	// 1 h; at most [MaxAccessTokenLifetime].
	AccessTokenLifetime time.Duration

	// SessionLifetime is how long people stay signed in. Default:
	// [DefaultSessionLifetime]; at most 30 days.
	SessionLifetime time.Duration

	// SessionIdle is after how long without activity people are signed out; at most SessionLifetime. Requests to the
	// authorization endpoint and pages are activity, and so are refreshes with online_access; FHIR requests are not.
	// Default: 0, never.
	SessionIdle time.Duration

	// RefreshTokenLifetime is how long a person's grant can be refreshed in all.
	// Default: 90 days; at most 366 days.
	RefreshTokenLifetime time.Duration

	// RefreshTokenIdleLifetime is how long a refresh token can be used. Default and
	// maximum: RefreshTokenLifetime.
	RefreshTokenIdleLifetime time.Duration

	// RefreshTokenGrace is how long after its use a refresh token yields its successor
	// again, for clients that missed the response. Default: [DefaultRefreshTokenGrace]; at
	// most 1 min; none if negative.
	RefreshTokenGrace time.Duration

	// Outages are when this gateway could not answer, of which the one before this process has
	// no beginning. For tokens that were replaced during one, or within RefreshTokenGrace
	// before it, RefreshTokenGrace counts from its end. Default: none.
	Outages func() []store.Outage

	// Features add to the server. Default: none.
	Features []Feature

	// AuthorizePOST also accepts authorization requests by POST (OpenID Connect Core
	// §3.1.2.1, SMART's capability authorize-post).
	AuthorizePOST bool

	// IsHTTPS reports whether the browser used https. Default: whether this process did.
	IsHTTPS func(*http.Request) bool

	// Logger gets what is no [audit.Event]: failures (Error), and refusals (Info) of requests
	// that change nothing. It never gets a token, code, password or secret. Default: none.
	Logger *slog.Logger
}

func (c *Config) fhirBase() string { return c.Issuer + c.FHIRBasePath }

// complete sets the defaults, and returns an error if the configuration is invalid.
func (c *Config) complete() error {
	if err := CheckIssuer(c.Issuer); err != nil {
		return err
	}
	for _, origin := range c.FrameAncestors {
		if err := page.CheckAncestor(origin); err != nil {
			return err
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Durable = cmp.Or(c.Durable, c.Store)
	if c.IsHTTPS == nil {
		c.IsHTTPS = func(r *http.Request) bool { return r.TLS != nil }
	}
	if c.Audit == nil {
		c.Audit = audit.NewLog(c.Logger).Record
	}
	if c.Outages == nil {
		c.Outages = func() []store.Outage { return nil }
	}
	if c.CountToken == nil {
		c.CountToken = func(http.ResponseWriter, *http.Request, string, bool) error { return nil }
	}
	if c.ClientAddress == nil {
		c.ClientAddress = httporigin.Peer
	}
	if err := c.completeLifetimes(); err != nil {
		return err
	}
	return c.Lockout.Complete()
}

func (c *Config) completeLifetimes() error {
	refresh := cmp.Or(c.RefreshTokenLifetime, DefaultRefreshTokenLifetime)
	for _, l := range []struct {
		name         string
		value        *time.Duration
		normal, most time.Duration
	}{
		{"access_token_lifetime", &c.AccessTokenLifetime, defaultAccessTokenLifetime, MaxAccessTokenLifetime},
		{"session_lifetime", &c.SessionLifetime, DefaultSessionLifetime, maxSessionLifetime},
		{"refresh_token_lifetime", &c.RefreshTokenLifetime, refresh, maxRefreshTokenLifetime},
		{"refresh_token_idle_lifetime", &c.RefreshTokenIdleLifetime, refresh, refresh},
	} {
		if *l.value == 0 {
			*l.value = l.normal
		} else if err := oauth2.CheckLifetime(l.name, *l.value, l.most); err != nil {
			return err
		}
	}
	if c.SessionIdle != 0 {
		if err := oauth2.CheckLifetime("session_idle", c.SessionIdle, c.SessionLifetime); err != nil {
			return err
		}
	}
	if c.RefreshTokenGrace < 0 {
		c.RefreshTokenGrace = 0
		return nil
	}
	c.RefreshTokenGrace = cmp.Or(c.RefreshTokenGrace, DefaultRefreshTokenGrace)
	return CheckLifetime("refresh_token_grace", c.RefreshTokenGrace)
}

// CheckIssuer returns an error if an address cannot be an issuer (RFC 8414 §2). It must not
// have a path, because those of the endpoints are fixed.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || issuer != "https://"+strings.ToLower(u.Host) {
		return fmt.Errorf("issuer %q must be https://host or https://host:port, in lower case and with nothing after it", issuer)
	}
	return nil
}

// entries are the local users and the configured clients of a server, which does not change them.
type entries struct {
	directory *people.Directory
	clients   *client.Registry
	origins   *origins

	// providers are the identity providers of an earlier server with the same configuration, by key, with their cached
	// discovery documents and keys. Nil for the first server.
	providers map[string]*people.Provider
}

func newEntries(c *Config) (*entries, error) {
	linked := slices.ContainsFunc(c.IdentityProviders, func(p people.IdentityProvider) bool { return p.LinkEmail })
	directory, err := people.NewDirectory(c.Users, c.Passwords, linked)
	if err != nil {
		return nil, err
	}
	clients := client.NewRegistry(token.GrantTypes())
	directory.Known, clients.Known = c.Known, c.Known
	e := &entries{directory: directory, clients: clients, origins: &origins{redirects: new(snapshotmap.Map[int])}}
	for _, client := range c.Clients {
		if err := e.addClient(c, client); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// addClient adds a client. None may be named like a user: their tokens would have the same sub, and one pass for the
// other (RFC 9700 §4.15).
func (e *entries) addClient(c *Config, client client.Client) error {
	if e.clients.Configured(client.ID) == nil && e.directory.User(client.ID) != nil {
		return fmt.Errorf("client %s has the name of a user: their tokens would have the same sub", client.ID)
	}
	for _, key := range client.IdentityProviders {
		if key != people.Local && !slices.ContainsFunc(c.IdentityProviders, func(p people.IdentityProvider) bool { return p.Key == key }) {
			return fmt.Errorf("client %q: unknown idp %q", client.ID, key)
		}
	}
	if err := e.clients.Add(client, c.Logger); err != nil {
		return err
	}
	e.origins.count(e.clients.Configured(client.ID), 1)
	return nil
}

// A Draft builds a [Server] with the configuration of another one, and other users and clients. The cost of a change and of
// the server does not depend on the number of users and clients. It is not safe for concurrent use.
type Draft struct {
	config  Config
	entries entries
}

// Draft returns a draft that begins with the users and clients of the server, which stays as it is.
func (s *Server) Draft() *Draft {
	return &Draft{s.config, entries{s.entries.directory.Clone(), s.entries.clients.Clone(), s.entries.origins.clone(), s.people.Accounts.Providers}}
}

// AddUser adds a user. It returns an error, and changes nothing, if the user is invalid or clashes with another user or a
// client.
func (d *Draft) AddUser(u people.User) error {
	if d.entries.clients.Configured(u.ID) != nil {
		return fmt.Errorf("user %s has the name of a client: their tokens would have the same sub", u.ID)
	}
	return d.entries.directory.Add(u)
}

// AddClient adds a client. It returns an error, and changes nothing, if the client is invalid or clashes with another client
// or a user.
func (d *Draft) AddClient(c client.Client) error { return d.entries.addClient(&d.config, c) }

// RemoveUser removes a user by name, if there is one.
func (d *Draft) RemoveUser(name string) { d.entries.directory.Remove(name) }

// RemoveClient removes a client by client_id, if there is one.
func (d *Draft) RemoveClient(id string) {
	if c := d.entries.clients.Configured(id); c != nil {
		d.entries.origins.count(c, -1)
		d.entries.clients.RemoveConfigured(id)
	}
}

// Server returns the server. The draft must not be used any more.
func (d *Draft) Server() (*Server, error) { return assemble(d.config, &d.entries) }
