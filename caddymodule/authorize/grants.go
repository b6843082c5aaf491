package authorize

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

type (
	// RevokedGrants counts what [Server.RevokeGrants] revoked beside codes and access tokens.
	RevokedGrants = token.RevokedGrants
)

// ErrUnknownHolder says that user or client do not exist, and that nothing was revoked.
var ErrUnknownHolder = token.ErrUnknownHolder

// GrantTypes says which clients may use which.
func GrantTypes() client.GrantTypes { return token.GrantTypes() }
