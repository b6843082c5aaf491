package fhirapp

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func init() { caddy.RegisterModule(new(App)) }

// App (global option fhir) is an OAuth 2.0, OpenID Connect and SMART App Launch authorization server for a FHIR R4 server. It
// contains the configuration that the fhir handlers share: issuer, clients, users, identity providers, signing keys and stores.
//
// Signing keys are stored in Caddy's storage or, with store keys, in the durable store that all gateways share. They are
// created on first use and rotated every 90 days.
type App struct {
	// The URL of the authorization server, `https://host` or `https://host:port`. It is the `iss` of tokens (RFC 8414 §2).
	// Required.
	Issuer string `json:"issuer,omitempty"`

	// The path of the FHIR API. The FHIR base URL, which is the `aud` of access tokens, consists of the issuer and this path.
	// Default: `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// The local users, who sign in with a password. Default: none.
	Users []User `json:"users,omitempty"`

	// The OpenID Connect providers through which people can sign in. Default: none.
	IdentityProviders []IdentityProvider `json:"idps,omitempty"`

	// The clients that may request tokens. Default: none.
	Clients []Client `json:"clients,omitempty"`

	// The FHIR scopes and custom scopes that people can be granted: the union of all rows that match a person, limited to the
	// scopes of the client. If there is at least one row, people whom no row matches get none of these scopes. Changes affect
	// existing tokens immediately. Default: all scopes of the client.
	ScopeLimits []scopelimit.Row `json:"scope_limits,omitempty"`

	// The lifetime of access tokens and ID tokens, at most `24h`. Default: `1h`.
	AccessTokenLifetime caddy.Duration `json:"access_token_lifetime,omitempty"`

	// The lifetime of a session at this server, at most `30d`. Default: `8h`.
	SessionLifetime caddy.Duration `json:"session_lifetime,omitempty"`

	// The time of inactivity after which people are signed out, at most the session lifetime. Requests to the authorization
	// endpoint and to pages count as activity, as do refreshes with online_access; FHIR requests do not. Default: never.
	SessionIdle caddy.Duration `json:"session_idle,omitempty"`

	// The time since authorization during which a client can refresh its tokens, at most `366d`. Default: `90d`.
	RefreshTokenLifetime caddy.Duration `json:"refresh_token_lifetime,omitempty"`

	// The time after which an unused refresh token expires, at most the refresh token lifetime. Default: the refresh token
	// lifetime.
	RefreshTokenIdleLifetime caddy.Duration `json:"refresh_token_idle_lifetime,omitempty"`

	// How long reuse of a refresh token returns the same successor, for clients that did not receive the response. The period
	// starts again after a restart and after a store outage. Later reuse revokes the entire grant (RFC 9700 §4.14.2). At most
	// `1m`; a negative value disables the grace period. Default: `10s`.
	RefreshTokenGrace caddy.Duration `json:"refresh_token_grace,omitempty"`

	// Accept authorization requests by POST as well as GET (SMART App Launch 2.2, capability `authorize-post`).
	// Default: GET only.
	AuthorizePOST bool `json:"authorize_post,omitempty"`

	// The origins of EHRs that embed apps, such as `https://ehr.example.org`. They may embed the sign-in and consent pages in
	// frames. Default: none.
	FrameAncestors []string `json:"frame_ancestors,omitempty"`

	// The branding of the pages. Default: the issuer's host as the name, no logo.
	Branding Branding `json:"branding,omitzero"`

	// The throttling of failed passwords, second factors and client secrets. Default: the defaults of each option.
	Lockout Lockout `json:"lockout,omitzero"`

	// The store of the authorization server's state. With `file`, sessions, refresh tokens, consents and revocations survive a
	// restart; codes are stored only in memory. With `memory`, all state is lost on restart. With `redis` and `postgres`,
	// gateways share all state. Default: `file`.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=fhir.stores inline_key=store"`

	// How long this gateway accepts tokens while it cannot reach a shared store and therefore cannot detect revocations at
	// other gateways. After that, it looks up each token in the store and returns 503 if the store is unavailable. From `2s` to
	// `1h`; a negative value means that tokens are accepted without the store. Default: `5s`.
	RevocationMaxLag caddy.Duration `json:"revocation_max_lag,omitempty"`

	// The listen address of the health probes `/live`, `/started` and `/ready`, in Caddy's network address syntax, such as
	// `:8081`. The probes use plain HTTP. Default: none.
	Health string `json:"health,omitempty"`

	// Secrets for storing signing keys and registered clients in the durable store, for all gateways that share it. The first
	// secret encrypts the signing keys. The others are previous secrets, used only to decrypt. Each is the base64 of at least
	// 32 random bytes, identical at all gateways. Keys and clients in Caddy's storage are imported once. Placeholders are
	// supported. Default: none (keys and clients are in Caddy's storage).
	StoreKeys []string `json:"store_keys,omitempty"`

	// Features of the authorization server, by the names of their modules. Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.features"`

	features  []any         // features of the authorization server, sorted by name
	updater   ServerUpdater // the only feature that is a ServerUpdater, or nil
	startPage string        // path of the page that is logged after the start

	stores         *stores.Set
	keys           *keyring.Keyring
	stateKey       string       // key in reloadStates; "" until Provision sets it
	state          *reloadState // value in reloadStates
	stopBackground func()       // stops the server's background work; nil before it starts
	server         *liveServer
	auditLog       *audit.Log
	logger         *slog.Logger
	ctx            caddy.Context

	releaseHealthPort func() error // closes the health port, or keeps it open for the next configuration
}

// CaddyModule implements [caddy.Module].
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir", New: func() caddy.Module { return new(App) }}
}

// Address returns the issuer and the path of the FHIR API.
func (a *App) Address() (issuer, fhirBase string) { return a.Issuer, a.FHIRBase }

// SetStartPage sets the path of the page that is logged after the start. Default: the account page.
func (a *App) SetStartPage(path string) { a.startPage = path }

// Server returns the current authorization server, which a [ServerUpdater] may replace.
func (a *App) Server() *authorize.Server { return a.server.current.Load() }

// Stores returns the authorization server's stores.
func (a *App) Stores() *stores.Set { return a.stores }

// Keys returns the signing keys.
func (a *App) Keys() *keyring.Keyring { return a.keys }

// Features returns the features of the authorization server, sorted by name.
func (a *App) Features() []any { return a.features }

// AuditLog returns the audit log.
func (a *App) AuditLog() *audit.Log { return a.auditLog }

// Holder returns the holder of an access token, or nil if the token's grant has been revoked or has expired.
func (a *App) Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	return a.Server().Holder(ctx, t)
}

// IsRevoked reports whether the access token with the given ID (jti) has been revoked.
func (a *App) IsRevoked(ctx context.Context, tokenID string) (bool, error) {
	return a.Server().IsRevoked(ctx, tokenID)
}

// Person returns a person's account at their identity provider, or the zero value for local users.
func (a *App) Person(ctx context.Context, sub string) audit.Person {
	return a.Server().Person(ctx, sub)
}

// TokenClaims returns the names of the stored claims, by the identity provider that issues them.
func (a *App) TokenClaims() map[string][]string { return a.Server().TokenClaims() }

// AllowsOrigin reports whether the origin is that of a client's redirect URI.
func (a *App) AllowsOrigin(origin string) bool { return a.Server().AllowsOrigin(origin) }

// OAuthURIs returns the endpoint URLs for the CapabilityStatement.
func (a *App) OAuthURIs() smart.OAuthURIs {
	return smart.OAuthURIs{
		Authorize: a.Issuer + endpoint.Authorize, Token: a.Issuer + endpoint.Token, Introspect: a.Issuer + endpoint.Introspect,
		Revoke: a.Issuer + endpoint.Revoke, Manage: a.Issuer + endpoint.Account, Register: a.Server().RegistrationEndpoint(),
	}
}

// recentRejections are the recent rejections. They survive reloads.
var recentRejections audit.Rejections

// Audit records an event in the audit log and counts it.
func (a *App) Audit(ctx context.Context, e audit.Event) {
	countEvent(e)
	recentRejections.Record(a.Issuer, e)
	a.auditLog.Record(ctx, e)
}

var eventCounts = metrics.NewCounters("authorization_events_total", "Number of audit log events.", "kind", "outcome", "grant")

// grantLabels are the grant types and response types used as metric labels.
var grantLabels = append(token.GrantTypes().TokenEndpointNames(),
	"", "code", "token", "id_token", "id_token token", "code token", "code id_token", "code id_token token")

// countEvent counts an audit event in the metrics. Clients choose the grant type, so only supported ones become labels.
func countEvent(e audit.Event) {
	grant := e.GrantType
	if !slices.Contains(grantLabels, grant) {
		grant = "other"
	}
	eventCounts.WithLabelValues(e.Kind, e.Outcome(), grant).Inc()
}
