package bearer

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// App is the fhir app as fhir_bearer needs it: its issuer's tokens are verified here.
type App interface {
	fhirbase.Addressed

	// Holder returns the holder of an access token; nil if the grant behind the token has ended.
	Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error)

	// Revoked reports whether an access token was revoked, by its jti.
	Revoked(ctx context.Context, tokenID string) (bool, error)

	// Person returns a person's account at their identity provider; the zero value for users of the configuration.
	Person(ctx context.Context, sub string) audit.Person

	// TokenClaims returns the names of the claims kept of people, by the identity provider that supplies them.
	TokenClaims() map[string][]string

	// AllowsOrigin reports whether an origin belongs to a client's redirect URI.
	AllowsOrigin(origin string) bool

	// Keys returns the keys that sign tokens, and seal links.
	Keys() *keyring.Keyring

	// Stores returns the stores: states of pages that are too long for a link are stored where codes are.
	Stores() *stores.Set

	// Events returns the audit trail.
	Events() *audit.Log

	// Features returns the features of the app. One that is an [AdmissionFeature] or [PolicyFeature] extends each fhir_bearer.
	Features() []any

	// Audit records an event, and counts it.
	Audit(ctx context.Context, e audit.Event)

	// OAuthURIs returns the endpoints for the CapabilityStatement.
	OAuthURIs() smart.OAuthURIs
}

// newCORS returns the policy of the option cors. With the app, its clients' origins are the default.
func newCORS(words []string, app App) (*crossorigin.Policy, error) {
	if app != nil && len(words) == 0 {
		words = []string{crossorigin.Clients}
	}
	return crossorigin.New(words, app)
}
