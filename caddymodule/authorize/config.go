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

// Defaults and limits of the lifetimes in [Config].
const (
	defaultAccessTokenLifetime = time.Hour
	codeLifetime               = 5 * time.Minute // lifetime of authorization codes, defined in docs/evidence/interface.md
	DefaultSessionLifetime     = 8 * time.Hour

	// DefaultRefreshTokenLifetime is the minimum that ONC's criterion for standardized APIs requires: three months.
	DefaultRefreshTokenLifetime = 90 * 24 * time.Hour

	DefaultRefreshTokenGrace = 10 * time.Second     // enough for a client to time out and retry
	maxRefreshTokenLifetime  = 366 * 24 * time.Hour // users sign in at least once a year
	maxRefreshTokenGrace     = time.Minute          // any later reuse is not a retry
	MaxAccessTokenLifetime   = keyring.Retention    // retired keys remain published for this long
	maxSessionLifetime       = 30 * 24 * time.Hour  // sessions that users leave open must expire
)

// maxLifetimes contains the maximum lifetimes by configuration name.
var maxLifetimes = map[string]time.Duration{
	"access_token_lifetime":       MaxAccessTokenLifetime,
	"session_lifetime":            maxSessionLifetime,
	"session_idle":                maxSessionLifetime,
	"refresh_token_lifetime":      maxRefreshTokenLifetime,
	"refresh_token_idle_lifetime": maxRefreshTokenLifetime,
	"refresh_token_grace":         maxRefreshTokenGrace,
}

// MaxLifetime returns the maximum of the lifetime with the given configuration name, e.g. session_lifetime. It returns 0 for
// other names.
func MaxLifetime(name string) time.Duration { return maxLifetimes[name] }

// CheckLifetime returns an error if a lifetime is out of range. name is the configuration name, e.g. session_lifetime.
func CheckLifetime(name string, lifetime time.Duration) error {
	return oauth2.CheckLifetime(name, lifetime, maxLifetimes[name])
}

// Config is the configuration of a [Server].
type Config struct {
	Issuer       string // base URL of the server, https://host[:port]; also the iss claim of tokens (RFC 8414 §2)
	FHIRBasePath string // path of the FHIR API; appended to Issuer, it forms the aud claim of tokens

	Clients           []client.Client           // clients registered by the operator; default none
	Users             []people.User             // local users; default none
	IdentityProviders []people.IdentityProvider // identity providers, contacted at the first sign-in; default none

	// CheckComplete is called if a client or user is not found. It returns an error if Clients and Users may be incomplete.
	// Default: the lists are complete.
	CheckComplete func(context.Context) error

	ScopeLimits []scopelimit.Row        // limits on the scopes of users; default none
	Passwords   people.PasswordComparer // compares passwords with the hashes of Users
	Keys        keyring.Keys            // signing and sealing keys

	// ChangePassword stores a new password of a user with a generation, or returns [people.ErrWrongPassword] if the user's hash has
	// changed. Default: users cannot change their passwords.
	ChangePassword func(ctx context.Context, user *people.User, password string) error

	// Store stores codes, pending second factors, and the revocations that are checked for each access token.
	Store store.Store

	// DurableStore stores data that must survive a restart: sessions, refresh tokens, consents, lockouts
	// and a copy of the revocations. Default: Store.
	DurableStore store.Store

	// Audit is called with every [audit.Event], in the goroutine of the request. Default: an [audit.Log] on Logger.
	Audit func(context.Context, audit.Event)

	// ClientAddress returns the IP address for rate limits and audit events. Default: the peer's address.
	ClientAddress func(*http.Request) string

	// Records queries the FHIR server with the user's rights, for the pages on which users choose a patient. Default: users
	// cannot choose patients.
	Records launch.Records

	// Checks contains the latest results of checks with identity providers. The server that replaces this one can reuse it.
	// Default: empty.
	Checks *revalidation.Checks

	// CountToken is called for each request to the token endpoint, first with an empty clientID, and again once the client is
	// identified. public means that the client has no secret or key. An error rejects the request. Default: no limit.
	CountToken func(w http.ResponseWriter, r *http.Request, clientID string, public bool) error

	Lockout lockout.Policy // lockout after failed attempts; the counters are stored in Durable

	Branding page.Branding // appearance of the HTML pages; no logo by default

	// FrameAncestors are the origins of EHRs that may frame the pages of authorization requests. Default: none.
	FrameAncestors []string

	// AccessTokenLifetime is the lifetime of access and ID tokens. Default: 1 h; at most [MaxAccessTokenLifetime].
	AccessTokenLifetime time.Duration

	// SessionLifetime is the lifetime of a session. Default: [DefaultSessionLifetime]; at most 30 days.
	SessionLifetime time.Duration

	// SessionIdleTimeout is the time without activity after which a session expires; at most SessionLifetime.
	// Activity means requests to the authorization endpoint and pages, and refreshes with online_access, but
	// not FHIR requests. Default: 0, no limit.
	SessionIdleTimeout time.Duration

	// RefreshTokenLifetime is how long a grant can be refreshed after the authorization. Default: 90 days; at most 366 days.
	RefreshTokenLifetime time.Duration

	// RefreshTokenIdleLifetime is the lifetime of an unused refresh token. Default and maximum: RefreshTokenLifetime.
	RefreshTokenIdleLifetime time.Duration

	// RefreshTokenGrace is the period after the first use of a refresh token in which another use returns the same successor,
	// for clients that missed the response. Default: [DefaultRefreshTokenGrace]; at most 1 min; negative disables it.
	RefreshTokenGrace time.Duration

	// Outages returns the periods in which this gateway could not respond. The period before the process started has no start
	// time. For tokens rotated during an outage, or less than RefreshTokenGrace before it, RefreshTokenGrace begins at the end
	// of the outage. Default: none.
	Outages func() []store.Outage

	// Features extend the server. Default: none.
	Features []Feature

	// AuthorizePOST enables authorization requests by POST (OpenID Connect Core §3.1.2.1, SMART's
	// capability authorize-post). Default: false.
	AuthorizePOST bool

	// IsHTTPS reports whether the browser used https. Default: whether the request was received over TLS.
	IsHTTPS func(*http.Request) bool

	// Logger receives everything except [audit.Event]: failures (level Error), and rejected requests that changed nothing
	// (level Info). Tokens, codes, passwords and secrets are never logged. Default: none.
	Logger *slog.Logger
}

func (c *Config) fhirBase() string { return c.Issuer + c.FHIRBasePath }

// applyDefaults sets the defaults and returns an error for an invalid configuration.
func (c *Config) applyDefaults() error {
	if err := CheckIssuer(c.Issuer); err != nil {
		return err
	}
	for _, origin := range c.FrameAncestors {
		if err := page.CheckAncestor(origin); err != nil {
			return err
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.DurableStore = cmp.Or(c.DurableStore, c.Store)
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
		c.ClientAddress = httporigin.PeerIP
	}
	if err := c.applyLifetimeDefaults(); err != nil {
		return err
	}
	return c.Lockout.Complete()
}

func (c *Config) applyLifetimeDefaults() error {
	refresh := cmp.Or(c.RefreshTokenLifetime, DefaultRefreshTokenLifetime)
	for _, l := range []struct {
		name                  string
		value                 *time.Duration
		defaultValue, maximum time.Duration
	}{
		{"access_token_lifetime", &c.AccessTokenLifetime, defaultAccessTokenLifetime, MaxAccessTokenLifetime},
		{"session_lifetime", &c.SessionLifetime, DefaultSessionLifetime, maxSessionLifetime},
		{"refresh_token_lifetime", &c.RefreshTokenLifetime, refresh, maxRefreshTokenLifetime},
		{"refresh_token_idle_lifetime", &c.RefreshTokenIdleLifetime, refresh, refresh},
	} {
		if *l.value == 0 {
			*l.value = l.defaultValue
		} else if err := oauth2.CheckLifetime(l.name, *l.value, l.maximum); err != nil {
			return err
		}
	}
	if c.SessionIdleTimeout != 0 {
		if err := oauth2.CheckLifetime("session_idle", c.SessionIdleTimeout, c.SessionLifetime); err != nil {
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

// CheckIssuer returns an error for an invalid issuer (RFC 8414 §2). An issuer has no path, because
// the paths of the endpoints are fixed.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || issuer != "https://"+strings.ToLower(u.Host) {
		return fmt.Errorf("issuer %q must be https://host or https://host:port in lower case, without a path", issuer)
	}
	return nil
}

// localEntries contains the local users and configured clients of a server, which does not modify them.
type localEntries struct {
	directory *people.Directory
	clients   *client.Registry
	origins   *origins

	// providers contains the identity providers that the previous server created from the same configuration, by key, with
	// their cached discovery documents and keys. It is nil for the first server.
	providers map[string]*people.Provider
}

func newEntries(c *Config) (*localEntries, error) {
	linksByEmail := slices.ContainsFunc(c.IdentityProviders, func(p people.IdentityProvider) bool { return p.LinkEmail })
	directory, err := people.NewDirectory(c.Users, c.Passwords, linksByEmail)
	if err != nil {
		return nil, err
	}
	clients := client.NewRegistry(token.GrantTypes())
	directory.CheckComplete, clients.CheckComplete = c.CheckComplete, c.CheckComplete
	e := &localEntries{directory: directory, clients: clients, origins: &origins{redirectCounts: new(snapshotmap.Map[int])}}
	for _, client := range c.Clients {
		if err := e.addClient(c, client); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// addClient adds a client. A client_id must not equal a user's id, because their tokens would have
// the same sub and could be confused (RFC 9700 §4.15).
func (e *localEntries) addClient(c *Config, client client.Client) error {
	if e.clients.FindConfigured(client.ID) == nil && e.directory.User(client.ID) != nil {
		return fmt.Errorf("client_id %s is already the name of a user: their tokens would have the same sub", client.ID)
	}
	for _, key := range client.IdentityProviders {
		if key != people.Local && !slices.ContainsFunc(c.IdentityProviders, func(p people.IdentityProvider) bool { return p.Key == key }) {
			return fmt.Errorf("client %q: idp %q is not configured", client.ID, key)
		}
	}
	if err := e.clients.Add(client, c.Logger); err != nil {
		return err
	}
	e.origins.add(e.clients.FindConfigured(client.ID), 1)
	return nil
}

// A Draft builds a [Server] from the configuration of an existing server with different users and clients. The cost does not
// depend on the total number of users and clients. A Draft is not safe for concurrent use.
type Draft struct {
	config  Config
	entries localEntries
}

// Draft returns a draft with the server's users and clients. It does not change the server.
func (s *Server) Draft() *Draft {
	return &Draft{s.config, localEntries{s.entries.directory.Clone(), s.entries.clients.Clone(), s.entries.origins.clone(), s.people.Accounts.Providers}}
}

// AddUser adds a user. It returns an error and changes nothing if the user is invalid or conflicts
// with another user or a client.
func (d *Draft) AddUser(u people.User) error {
	if d.entries.clients.FindConfigured(u.ID) != nil {
		return fmt.Errorf("user name %q is already the client_id of a client: their tokens would have the same sub", u.ID)
	}
	return d.entries.directory.Add(u)
}

// AddClient adds a client. It returns an error and changes nothing if the client is invalid or
// conflicts with another client or a user.
func (d *Draft) AddClient(c client.Client) error { return d.entries.addClient(&d.config, c) }

// RemoveUser removes a user by name, if present.
func (d *Draft) RemoveUser(name string) { d.entries.directory.Remove(name) }

// RemoveClient removes a client by client_id, if present.
func (d *Draft) RemoveClient(id string) {
	if c := d.entries.clients.FindConfigured(id); c != nil {
		d.entries.origins.add(c, -1)
		d.entries.clients.RemoveConfigured(id)
	}
}

// Server returns the server built from the draft. The draft must not be used afterwards.
func (d *Draft) Server() (*Server, error) { return newServer(d.config, &d.entries) }
