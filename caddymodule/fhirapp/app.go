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

// App (global option fhir) is an OAuth 2.0, OpenID Connect and SMART App Launch authorization server for a FHIR R4 server.
// It contains the configuration that the fhir handlers share: issuer, clients, users, identity providers, signing keys and
// stores.
//
// Signing keys are in Caddy's storage or, with store keys, in the durable store, where all gateways share them. They are
// created on first use and rotated every 90 days.
type App struct {
	// The authorization server's address, `https://host` or `https://host:port`: the `iss` of its tokens (RFC 8414
	// §2). Required.
	Issuer string `json:"issuer,omitempty"`

	// The path of the FHIR API. The issuer followed by it is the FHIR base URL, the `aud` of access tokens. Default:
	// `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// The local users, who sign in with a password. Default: none.
	Users []User `json:"users,omitempty"`

	// The OpenID Connect providers through which people can sign in. Default: none.
	IdentityProviders []IdentityProvider `json:"idps,omitempty"`

	// The clients that can request tokens. Default: none.
	Clients []Client `json:"clients,omitempty"`

	// The FHIR scopes and custom scopes that people can be granted: the union of all rows that match a person, limited to
	// the scopes of the client. As soon as there is one row, people whom no row matches get none of these scopes. A change
	// affects existing tokens immediately. Default: all scopes of the client.
	ScopeLimits []scopelimit.Row `json:"scope_limits,omitempty"`

	// The lifetime of access tokens and ID tokens; at most 24h. Default: `1h`.
	AccessTokenLifetime caddy.Duration `json:"access_token_lifetime,omitempty"`

	// The lifetime of a session at this server; at most 30d. Default: `8h`.
	SessionLifetime caddy.Duration `json:"session_lifetime,omitempty"`

	// The inactivity after which people are signed out; at most the session lifetime. Requests to the authorization endpoint
	// and to pages count as activity, and so do refreshes with online_access; FHIR requests do not. Default: never.
	SessionIdle caddy.Duration `json:"session_idle,omitempty"`

	// How long a client can refresh a grant in total; at most 366d. Default: `90d`.
	RefreshTokenLifetime caddy.Duration `json:"refresh_token_lifetime,omitempty"`

	// The time after which an unused refresh token expires; at most the refresh token lifetime. Default: the refresh token
	// lifetime.
	RefreshTokenIdleLifetime caddy.Duration `json:"refresh_token_idle_lifetime,omitempty"`

	// How long a used refresh token returns the same successor again, for clients that did not receive the
	// response. It also counts from a restart and from the end of a store outage. Later reuse revokes the whole grant (RFC
	// 9700 §4.14.2). At most 1m; negative: off. Default: `10s`.
	RefreshTokenGrace caddy.Duration `json:"refresh_token_grace,omitempty"`

	// Accept authorization requests by POST as well as GET (SMART App Launch 2.2, capability `authorize-post`).
	// Default: GET only.
	AuthorizePOST bool `json:"authorize_post,omitempty"`

	// The origins of EHRs that embed apps, such as `https://ehr.example.org`. They may frame the sign-in and consent pages.
	// Default: none.
	FrameAncestors []string `json:"frame_ancestors,omitempty"`

	// The branding of the pages. Default: the issuer's host as the name, no logo.
	Branding Branding `json:"branding,omitzero"`

	// The throttling of failed passwords, second factors and client secrets. Default: as for an empty block.
	Lockout Lockout `json:"lockout,omitzero"`

	// The store of the authorization server's state. With `file`, sessions, refresh tokens, consents and revocations survive
	// a restart; codes stay in memory. `memory` loses everything in a restart. `redis` and `postgres` share everything
	// between several gateways. Default: `file`.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=fhir.stores inline_key=store"`

	// How long this gateway accepts tokens without contact with a shared store, and so without learning of revocations at
	// other gateways. After that, it looks up each token in the store, and returns 503 if it cannot. At least 2s, at most
	// 1h; negative: it continues without the store. Default: `5s`.
	RevocationMaxLag caddy.Duration `json:"revocation_max_lag,omitempty"`

	// The address of the health probes `/live`, `/started` and `/ready`, as one of Caddy's network addresses, such as
	// `:8081`; plain HTTP. Default: none.
	Health string `json:"health,omitempty"`

	// Keep the signing keys and registered clients in the durable store, for all gateways that share it, and encrypt the
	// signing keys with the first of these keys: base64 of at least 32 random bytes, the same at all gateways. The others
	// are previous keys, used to decrypt only. Keys and clients in Caddy's storage are imported once. Placeholders are
	// supported. Default: none; Caddy's storage is used.
	StoreKeys []string `json:"store_keys,omitempty"`

	// Features of the authorization server, by the names of their modules. Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.features"`

	features  []any         // features of the authorization server, sorted by name
	updater   ServerUpdater // the feature that is one; nil if none is
	startPage string        // path logged when the gateway has started

	stores         *stores.Set
	keys           *keyring.Keyring
	stateKey       string       // key of reloadStates; "" before Provision has set it
	state          *reloadState // the state at pooled
	stopBackground func()       // stops the server's background work; nil before it starts
	server         *liveServer
	auditLog       *audit.Log
	logger         *slog.Logger
	ctx            caddy.Context

	releaseHealthPort func() error // closes the health port, or leaves it open for the next configuration
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir", New: func() caddy.Module { return new(App) }}
}

// Address returns the issuer and the path of the FHIR API below it.
func (a *App) Address() (issuer, fhirBase string) { return a.Issuer, a.FHIRBase }

// SetStartPage sets the path that is logged when the gateway has started. Default: the account page.
func (a *App) SetStartPage(path string) { a.startPage = path }

// Server returns the current authorization server, which a [ServerUpdater] may replace.
func (a *App) Server() *authorize.Server { return a.server.current.Load() }

// Stores returns the stores of the authorization server.
func (a *App) Stores() *stores.Set { return a.stores }

// Keys returns the signing keys.
func (a *App) Keys() *keyring.Keyring { return a.keys }

// Features returns the features of the authorization server, sorted by name.
func (a *App) Features() []any { return a.features }

// AuditLog returns the audit log.
func (a *App) AuditLog() *audit.Log { return a.auditLog }

// Holder returns the holder of an access token; nil if the grant behind the token has been revoked or has expired.
func (a *App) Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	return a.Server().Holder(ctx, t)
}

// IsRevoked reports whether the access token with a jti was revoked.
func (a *App) IsRevoked(ctx context.Context, tokenID string) (bool, error) {
	return a.Server().IsRevoked(ctx, tokenID)
}

// Person returns a person's account at their identity provider; the zero value for local users.
func (a *App) Person(ctx context.Context, sub string) audit.Person {
	return a.Server().Person(ctx, sub)
}

// TokenClaims returns the names of the stored claims, by the identity provider that supplies them.
func (a *App) TokenClaims() map[string][]string { return a.Server().TokenClaims() }

// AllowsOrigin reports whether an origin belongs to a client's redirect URI.
func (a *App) AllowsOrigin(origin string) bool { return a.Server().AllowsOrigin(origin) }

// OAuthURIs returns the endpoints for the CapabilityStatement.
func (a *App) OAuthURIs() smart.OAuthURIs {
	return smart.OAuthURIs{
		Authorize: a.Issuer + endpoint.Authorize, Token: a.Issuer + endpoint.Token, Introspect: a.Issuer + endpoint.Introspect,
		Revoke: a.Issuer + endpoint.Revoke, Manage: a.Issuer + endpoint.Account, Register: a.Server().RegistrationEndpoint(),
	}
}

// recentRejections are the recent refusals, kept across reloads.
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

// countEvent counts an audit event. The client chooses the grant, so only a known grant becomes a label.
func countEvent(e audit.Event) {
	grant := e.GrantType
	if !slices.Contains(grantLabels, grant) {
		grant = "other"
	}
	eventCounts.WithLabelValues(e.Kind, e.Outcome(), grant).Inc()
}
