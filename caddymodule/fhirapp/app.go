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
// has what the fhir handlers share: the issuer, its clients and users, identity providers, the keys that sign tokens, and the
// stores.
//
// Signing keys are in Caddy's storage or, with store keys, in the durable store, shared by all gateways that use it. They
// are made on first need and replaced every 90 days.
type App struct {
	// The authorization server's address, `https://host` or `https://host:port`: the `iss` of its tokens (RFC 8414
	// §2). Required.
	Issuer string `json:"issuer,omitempty"`

	// The path of the FHIR API. The issuer followed by it is the FHIR base URL, the `aud` of access tokens. Default:
	// `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	// The users who sign in with a password here. Default: none.
	Users []User `json:"users,omitempty"`

	// The OpenID Connect providers by which people may sign in. Default: none.
	IdentityProviders []IdentityProvider `json:"idps,omitempty"`

	// The clients that may ask for tokens. Default: none.
	Clients []Client `json:"clients,omitempty"`

	// Which scopes for records, and which of the site's own, people may have: those of all rows that match them, as far as
	// the client may have them too. With one row, who matches none has none of these. A change affects existing tokens at
	// once. Default: all that the client may have.
	ScopeLimits []scopelimit.Row `json:"scope_limits,omitempty"`

	// How long access and ID tokens are valid; at most 24h. Default: `1h`.
	AccessTokenLifetime caddy.Duration `json:"access_token_lifetime,omitempty"`

	// How long a session at this server lasts; at most 30d. Default: `8h`.
	SessionLifetime caddy.Duration `json:"session_lifetime,omitempty"`

	// After how long without activity people are signed out; at most the session lifetime. Requests to the authorization
	// endpoint and pages are activity, and so are refreshes with online_access; FHIR requests are not. Default: never.
	SessionIdle caddy.Duration `json:"session_idle,omitempty"`

	// How long a client can refresh a grant, in all; at most 366d. Default: `90d`.
	RefreshTokenLifetime caddy.Duration `json:"refresh_token_lifetime,omitempty"`

	// How long a refresh token stays valid without being used; at most the refresh token lifetime. Default: the
	// refresh token lifetime.
	RefreshTokenIdleLifetime caddy.Duration `json:"refresh_token_idle_lifetime,omitempty"`

	// How long a used refresh token yields the same successor again, for clients that did not receive the answer. It
	// also counts from a restart, and from the end of an outage of the store. After that, using it again ends the whole
	// grant (RFC 9700 §4.14.2). At most 1m; negative: off. Default: `10s`.
	RefreshTokenGrace caddy.Duration `json:"refresh_token_grace,omitempty"`

	// Accept authorization requests by POST as well as GET (SMART App Launch 2.2, capability `authorize-post`).
	// Default: GET only.
	AuthorizePOST bool `json:"authorize_post,omitempty"`

	// The origins of EHRs that open apps in frames, such as `https://ehr.example.org`: they may frame the pages on which
	// people sign in and consent. Default: nobody may.
	FrameAncestors []string `json:"frame_ancestors,omitempty"`

	// The look of the pages that people see. Default: the issuer's host as the name, no logo.
	Branding Branding `json:"branding,omitzero"`

	// How guessing of passwords, second factors and client secrets is slowed down. Default: as for an empty block.
	Lockout Lockout `json:"lockout,omitzero"`

	// Where state is kept. With `file`, sessions, refresh tokens, consents and revocations survive a restart, and codes are
	// in memory. `memory` keeps nothing over a restart. `redis` and `postgres` keep everything for several gateways. Default:
	// `file`.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=fhir.stores inline_key=store"`

	// How long this gateway answers for tokens without hearing from a store that it shares, and so without knowing which
	// were revoked elsewhere since then. After that, it asks the store for each token, and answers 503 if it cannot. At
	// least 2s, at most 1h; negative: it goes on without the store. Default: `5s`.
	RevocationMaxLag caddy.Duration `json:"revocation_max_lag,omitempty"`

	// Where probes ask whether this gateway is live, started and ready (`/live`, `/started`, `/ready`), as one of Caddy's network
	// addresses, such as `:8081`; by plain HTTP. Default: nowhere.
	Health string `json:"health,omitempty"`

	// Keep the signing keys and registered clients in the durable store, for all gateways that share it, and seal the
	// signing keys with the first of these: base64 of at least 32 random bytes, the same at all gateways. Those after it
	// are previous ones, which may still have sealed them. What Caddy's storage holds is taken over once. Placeholders are
	// supported. Default: none, they are in Caddy's storage.
	StoreKeys []string `json:"store_keys,omitempty"`

	// Features of the authorization server, by the names of their modules. Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.features"`

	features  []any         // of the authorization server, in the order of their names
	updater   ServerUpdater // among features; may be nil
	startPage string        // path, which the log of a started gateway names

	stores *stores.Set
	keys   *keyring.Keyring
	pooled string      // what of statesInUse is ours
	state  *stateInUse // the state at pooled
	ending func()      // ends what the server does in the background; nil before it began
	server *liveServer
	events *audit.Log
	logger *slog.Logger
	ctx    caddy.Context

	closeHealth func() error // leaves the health port to the next configuration, or closes it
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir", New: func() caddy.Module { return new(App) }}
}

// Address returns the issuer, and the path of the FHIR API below it.
func (a *App) Address() (issuer, fhirBase string) { return a.Issuer, a.FHIRBase }

// SetStartPage sets the path of the page that the log of a started gateway names. Default: the account page.
func (a *App) SetStartPage(path string) { a.startPage = path }

// Server returns the authorization server in force. A [ServerUpdater] replaces it.
func (a *App) Server() *authorize.Server { return a.server.inForce.Load() }

// Stores returns where state is kept.
func (a *App) Stores() *stores.Set { return a.stores }

// Keys returns the keys that sign tokens.
func (a *App) Keys() *keyring.Keyring { return a.keys }

// Features returns the features of the authorization server, in the order of their names.
func (a *App) Features() []any { return a.features }

// Events returns the audit trail.
func (a *App) Events() *audit.Log { return a.events }

// Holder returns the holder of an access token; nil if the grant behind the token has ended.
func (a *App) Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	return a.Server().Holder(ctx, t)
}

// Revoked reports whether an access token was revoked, by its jti.
func (a *App) Revoked(ctx context.Context, tokenID string) (bool, error) {
	return a.Server().Revoked(ctx, tokenID)
}

// Person returns a person's account at their identity provider; the zero value for users of the configuration.
func (a *App) Person(ctx context.Context, sub string) audit.Person {
	return a.Server().Person(ctx, sub)
}

// TokenClaims returns the names of the claims kept of people, by the identity provider that supplies them.
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

// refusals are kept over reloads.
var refusals audit.Refusals

// Audit records an event in the audit trail, and counts it.
func (a *App) Audit(ctx context.Context, e audit.Event) {
	countEvent(e)
	refusals.Note(a.Issuer, e)
	a.events.Record(ctx, e)
}

var events = metrics.NewCounters("authorization_events_total", "Events of the audit trail.", "kind", "outcome", "grant")

// knownGrants are the grant types and response types that become labels.
var knownGrants = append(token.GrantTypes().AtTokenEndpoint(),
	"", "code", "token", "id_token", "id_token token", "code token", "code id_token", "code id_token token")

// countEvent counts an event of the audit trail. A grant, which a client chooses, becomes a label only if it is known.
func countEvent(e audit.Event) {
	grant := e.Grant
	if !slices.Contains(knownGrants, grant) {
		grant = "other"
	}
	events.WithLabelValues(e.Kind, e.Outcome(), grant).Inc()
}
