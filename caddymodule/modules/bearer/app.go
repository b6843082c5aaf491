package bearer

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/quota"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// App is the fhir app as fhir_bearer needs it: its issuer's tokens are verified here.
type App interface {
	fhirapp.Addressed

	// Server returns the authorization server, which knows whose tokens have ended.
	Server() *authorize.Server

	// Keys returns the keys that sign tokens, and seal links.
	Keys() *keyring.Keyring

	// Stores returns the stores: states of pages that are too long for a link are stored where codes are.
	Stores() *stores.Set

	// Events returns the audit trail.
	Events() *audit.Log

	// QuotaSet returns the quotas; nil if there are none.
	QuotaSet() *quota.Set

	// Audit records an event, and counts it.
	Audit(ctx context.Context, e audit.Event)

	// Registers reports whether clients may register themselves.
	Registers() bool
}

// newCORS returns the policy of the option cors. With the app, its clients' origins are the default.
func newCORS(words []string, app App) (*crossorigin.Policy, error) {
	if app == nil {
		return crossorigin.New(words, nil)
	}
	if len(words) == 0 {
		words = []string{crossorigin.Clients}
	}
	return crossorigin.New(words, inForce{app})
}

// inForce asks the authorization server that is in force at the time.
type inForce struct{ app App }

// Holder is that of [authorize.Server].
func (s inForce) Holder(ctx context.Context, t authorize.AccessToken) (*authorize.Holder, error) {
	return s.app.Server().Holder(ctx, t)
}

// Revoked is that of [authorize.Server].
func (s inForce) Revoked(ctx context.Context, tokenID string) (bool, error) {
	return s.app.Server().Revoked(ctx, tokenID)
}

// AllowsOrigin is that of [authorize.Server].
func (s inForce) AllowsOrigin(origin string) bool { return s.app.Server().AllowsOrigin(origin) }
