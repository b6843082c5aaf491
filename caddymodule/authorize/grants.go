package authorize

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/token"
)

type (
	// AccessToken holds the claims of a verified access token that decide whether its grant still stands.
	AccessToken = token.AccessToken

	// Holder is whom an access token stands for.
	Holder = token.Holder

	// RevokedGrants counts what [Server.RevokeGrants] revoked beside codes and access tokens.
	RevokedGrants = token.RevokedGrants
)

// ErrUnknownHolder says that user or client do not exist, and that nothing was revoked.
var ErrUnknownHolder = token.ErrUnknownHolder

// GrantTypes says which clients may use which.
func GrantTypes() client.GrantTypes { return token.GrantTypes() }
