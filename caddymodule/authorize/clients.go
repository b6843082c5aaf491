package authorize

import "github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"

type (
	// Client is an app that may ask for tokens (RFC 6749 §2).
	Client = client.Client

	// ClientSettings are a [Client] as a configuration says it.
	ClientSettings = client.Settings

	// RequestObjects says which request objects a client may send (OpenID Connect Core §6).
	RequestObjects = client.RequestObjects
)

// What a [Client] can say of PKCE and of consent.
const (
	PKCERequired    = client.PKCERequired
	PKCEOptional    = client.PKCEOptional
	ConsentRequired = client.ConsentRequired
	ConsentSkip     = client.ConsentSkip
)

// SecretCommand makes a client's secret.
const SecretCommand = client.SecretCommand

// ResponseTypes are those that a client can have.
var ResponseTypes = client.ResponseTypes

// CheckRedirectURI refuses what no client may register, native or not.
func CheckRedirectURI(uri string) error { return client.CheckAnyRedirectURI(uri) }

// CheckBackchannelLogoutURI applies the rules of redirect URIs (Back-Channel Logout §2.2).
func CheckBackchannelLogoutURI(uri string) error { return client.CheckBackchannelLogoutURI(uri) }

// IsGuessableSecret reports whether a client's secret has too little entropy.
func IsGuessableSecret(secret string) bool { return client.IsGuessable(secret) }
