package authorize

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// Defaults and bounds of the lifetimes in [Config].
const (
	DefaultAccessTokenLifetime = time.Hour
	DefaultCodeLifetime        = 5 * time.Minute
	DefaultSessionLifetime     = 8 * time.Hour

	// DefaultRefreshTokenLifetime is the three months that ONC's criterion for
	// standardized APIs requires at least.
	DefaultRefreshTokenLifetime = 90 * 24 * time.Hour

	// DefaultRefreshTokenGrace lets a client time out and try again.
	DefaultRefreshTokenGrace = 10 * time.Second

	// MaxRefreshTokenLifetime has a person sign in at least once a year.
	MaxRefreshTokenLifetime = 366 * 24 * time.Hour

	// MaxRefreshTokenGrace is after what time a repeated request is no accident.
	MaxRefreshTokenGrace = time.Minute

	// MaxAccessTokenLifetime is no longer than a replaced key stays published.
	MaxAccessTokenLifetime = keyring.Retention

	// MaxSessionLifetime keeps a forgotten sign-in from lasting for ever.
	MaxSessionLifetime = 30 * 24 * time.Hour

	// MaxCodeLifetime is what RFC 6749 §4.1.2 recommends at most.
	MaxCodeLifetime = 10 * time.Minute
)

// maxLifetimes bound the lifetimes in [Config], by their names in a configuration.
var maxLifetimes = map[string]time.Duration{
	"access_token_lifetime":       MaxAccessTokenLifetime,
	"code_lifetime":               MaxCodeLifetime,
	"session_lifetime":            MaxSessionLifetime,
	"refresh_token_lifetime":      MaxRefreshTokenLifetime,
	"refresh_token_idle_lifetime": MaxRefreshTokenLifetime,
	"refresh_token_grace":         MaxRefreshTokenGrace,
}

// CheckLifetime returns an error if a lifetime is out of bounds for its name in a
// configuration, such as code_lifetime.
func CheckLifetime(name string, lifetime time.Duration) error {
	return oauth2.CheckLifetime(name, lifetime, maxLifetimes[name])
}

// Config is the configuration of a [Server].
type Config struct {
	// Issuer is the server's own address, https://host[:port], and the iss of its tokens
	// (RFC 8414 §2).
	Issuer string

	// FHIRBasePath is the path of the FHIR API. Issuer and path are the aud of tokens.
	FHIRBasePath string

	Clients []client.Client // registered by the operator
	Users   []people.User   // local users

	// IdentityProviders are where else people may sign in. They are first contacted when
	// somebody does.
	IdentityProviders []people.IdentityProvider

	// Registration lets clients register themselves. Default: they cannot.
	Registration *client.Registration

	Passwords people.PasswordComparer // checks passwords of Users
	Keys      keyring.Keys            // sign tokens and seal pending requests

	// Store keeps codes, pending second factors, and the revocations that each check of an
	// access token reads.
	Store store.Store

	// Durable keeps what must outlive a restart: sessions, refresh tokens, consent,
	// lockouts, and a copy of the revocations. Default: Store.
	Durable store.Store

	// Audit gets every [audit.Event], in the goroutine of its request. Default: an
	// [audit.Log] on Logger.
	Audit func(context.Context, audit.Event)

	// ClientAddress is the IP address under which a request is counted and recorded.
	// Default: that of the peer.
	ClientAddress func(*http.Request) string

	// Lockout slows down guessing. Its counts are in Durable.
	Lockout lockout.Policy

	// AccessTokenLifetime is that of access and ID tokens. Default:
	// [DefaultAccessTokenLifetime]; at most [MaxAccessTokenLifetime].
	AccessTokenLifetime time.Duration

	// CodeLifetime is that of authorization codes. Default: [DefaultCodeLifetime]; at
	// most [MaxCodeLifetime].
	CodeLifetime time.Duration

	// SessionLifetime is how long people stay signed in. Default:
	// [DefaultSessionLifetime]; at most [MaxSessionLifetime].
	SessionLifetime time.Duration

	// RefreshTokenLifetime is how long a person's grant can be refreshed in all.
	// Default: [DefaultRefreshTokenLifetime]; at most [MaxRefreshTokenLifetime].
	RefreshTokenLifetime time.Duration

	// RefreshTokenIdleLifetime is how long a refresh token can be used. Default and
	// maximum: RefreshTokenLifetime.
	RefreshTokenIdleLifetime time.Duration

	// RefreshTokenGrace is how long after its use a refresh token returns its successor
	// again, for clients that did not get the response. Default:
	// [DefaultRefreshTokenGrace]; at most [MaxRefreshTokenGrace]; none if negative.
	RefreshTokenGrace time.Duration

	// Started is when this process began to serve: RefreshTokenGrace begins then for what
	// an earlier process stored. Default: the zero time.
	Started func() time.Time

	// AuthorizePOST also accepts authorization requests by POST (OpenID Connect Core
	// §3.1.2.1, SMART's capability authorize-post).
	AuthorizePOST bool

	// OmitIssuer leaves iss (RFC 9207) out of authorization responses, for clients that
	// reject unknown parameters.
	OmitIssuer bool

	// IsHTTPS reports whether the browser used https. Default: whether this process did.
	IsHTTPS func(*http.Request) bool

	// Logger gets what is not an [audit.Event]: failures (Error), and refusals (Info) of
	// requests that change nothing. It never gets a token, code, password or secret.
	// Default: nothing is logged.
	Logger *slog.Logger
}

func (c *Config) fhirBase() string { return c.Issuer + c.FHIRBasePath }

// complete sets the defaults, and returns an error if the configuration is invalid.
func (c *Config) complete() error {
	if err := CheckIssuer(c.Issuer); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.IsHTTPS == nil {
		c.IsHTTPS = func(r *http.Request) bool { return r.TLS != nil }
	}
	if c.Durable == nil {
		c.Durable = c.Store
	}
	if c.Audit == nil {
		c.Audit = audit.NewLog(c.Logger).Record
	}
	if c.Started == nil {
		c.Started = func() time.Time { return time.Time{} }
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
		{"access_token_lifetime", &c.AccessTokenLifetime, DefaultAccessTokenLifetime, MaxAccessTokenLifetime},
		{"code_lifetime", &c.CodeLifetime, DefaultCodeLifetime, MaxCodeLifetime},
		{"session_lifetime", &c.SessionLifetime, DefaultSessionLifetime, MaxSessionLifetime},
		{"refresh_token_lifetime", &c.RefreshTokenLifetime, refresh, MaxRefreshTokenLifetime},
		{"refresh_token_idle_lifetime", &c.RefreshTokenIdleLifetime, refresh, refresh},
	} {
		if *l.value == 0 {
			*l.value = l.normal
		} else if err := oauth2.CheckLifetime(l.name, *l.value, l.most); err != nil {
			return err
		}
	}
	return c.completeGrace()
}

func (c *Config) completeGrace() error {
	switch {
	case c.RefreshTokenGrace < 0:
		c.RefreshTokenGrace = 0
	case c.RefreshTokenGrace == 0:
		c.RefreshTokenGrace = DefaultRefreshTokenGrace
	default:
		return oauth2.CheckLifetime("refresh_token_grace", c.RefreshTokenGrace, MaxRefreshTokenGrace)
	}
	return nil
}
