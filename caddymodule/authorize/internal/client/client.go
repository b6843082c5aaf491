package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// Client is an app that may ask for tokens (RFC 6749 §2).
type Client struct {
	ID     string // the client_id. Required.
	Name   string // shown to the person who signs in. Default: the ID.
	Secret string // of a confidential client (RFC 6749 §2.3.1); public clients have none, and no keys

	// SecretSHA256 is the digest of a random secret, in place of Secret.
	SecretSHA256 []byte `json:"-"`

	JWKS    []byte // a JWK Set (RFC 7517 §5) of the client's public keys, for private_key_jwt (RFC 7523)
	JWKSURI string // the address of one: https, or http on loopback

	// Transport makes the requests to JWKSURI and BackchannelLogoutURI. Default: a clone of
	// http.DefaultTransport.
	Transport http.RoundTripper `json:"-"`

	// AssertionAlgorithm is token_endpoint_auth_signing_alg (OpenID Connect Dynamic Client
	// Registration §2). Default: any that discovery lists.
	AssertionAlgorithm string

	// IssuerAudience accepts assertions alone whose aud is the issuer, which no other server can
	// have been sent. Default: the address of the endpoint too, as SMART App Launch has it.
	IssuerAudience bool `json:",omitempty"`

	RedirectURIs []string // where responses may be sent, compared exactly (RFC 9700 §2.1)

	// Native apps (RFC 8252) may have redirect URIs of loopback IP addresses, at any port,
	// and of private-use schemes. Default: false.
	Native bool

	// Local stands for every app on the person's own computer, for trying out: it may have any
	// redirect URI that [IsLocal]. Default: false.
	Local bool `json:"-"`

	Scopes            []string // beside [ReservedScopes]
	ResponseTypes     []string // of [ResponseTypes]. Default: "code" if there are redirect URIs.
	GrantTypes        []string // beyond what ResponseTypes implies, such as "client_credentials"
	IdentityProviders []string // keys of those to sign in by, and "local". Default: all.

	// IgnoreUnknownScopes leaves words out of a requested scope that no specification defines
	// and Scopes do not have (RFC 6749 §3.3). Default: invalid_scope.
	IgnoreUnknownScopes bool `json:",omitempty"`

	// ErrorDescription sends error_description to the redirect URI with each error, not only
	// where the interface has one. Default: false.
	ErrorDescription bool `json:",omitempty"`

	// JSONState accepts a state that is JSON. Default: invalid_request.
	JSONState bool `json:",omitempty"`

	// PostLogoutRedirectURIs are where a browser may be sent after signing out, compared
	// exactly (OpenID Connect RP-Initiated Logout §3.1).
	PostLogoutRedirectURIs []string

	// BackchannelLogoutURI receives logout tokens for sessions in which the client got
	// an ID token (OpenID Connect Back-Channel Logout §2.2). Default: none are sent.
	BackchannelLogoutURI string

	// BackchannelSession is backchannel_logout_session_required (Back-Channel Logout §2.2). Each
	// logout token has the sid anyway.
	BackchannelSession bool `json:",omitempty"`

	// UserinfoAlgorithm is userinfo_signed_response_alg (OpenID Connect Dynamic Client
	// Registration §2), one of [keyring.IDTokenAlgorithms]. Default: userinfo is plain JSON.
	UserinfoAlgorithm string `json:",omitempty"`

	// IntrospectAll lets the client introspect tokens of all clients, as a resource server
	// must (RFC 7662 §4). Default: only its own.
	IntrospectAll bool

	// IDTokenAlgorithm is id_token_signed_response_alg (OpenID Connect Dynamic Client
	// Registration §2): "RS256", or "ES256", which is twenty times faster. Default: "RS256".
	IDTokenAlgorithm string

	// ScopeClaimsInIDToken adds the claims of the scope (OpenID Connect Core §5.4) to
	// the ID tokens of the code flow. Default: only userinfo has them.
	ScopeClaimsInIDToken bool

	// LaunchURI is where an EHR opens the app (SMART App Launch 2.2, EHR launch): https, or
	// http on loopback. Default: none.
	LaunchURI string `json:",omitempty"`

	// LaunchContext lets the client, an EHR, register what it launches apps with. Only a
	// confidential client may. Default: it may not.
	LaunchContext bool `json:",omitempty"`

	RequirePushed bool   // refuse authorization requests that were not pushed (RFC 9126 §6)
	Consent       string // [ConsentRequired], [ConsentSkip], or empty to ask only for prompt=consent

	// ACR is the least class of sign-in that the client accepts ([oauth2.ACRValues]). Default:
	// any.
	ACR string

	// PKCE is [PKCERequired] or [PKCEOptional]. Default: required of public clients, as
	// nothing else binds a code to them (RFC 9700 §2.1.1).
	PKCE string

	Links          Links          `json:",omitzero"` // that people are shown
	RequestObjects RequestObjects `json:",omitzero"` // that it may send

	secretDigest []byte // nil without a secret
	guessable    bool   // Secret is
	keys         *upstream.KeySet
	waits        bool                              // for the operator's approval
	granted      *boundedcache.Cache[string, bool] // by scope; nil: not cached

	// Registered clients registered themselves. Only the digest of their secret is known.
	Registered bool `json:"-"`

	// Generation tells the client from earlier ones with its ID. Default: there are none.
	Generation oauth2.Generation `json:"-"`
}

// Links are addresses that an app registers for people (RFC 7591 §2). Each may be "".
type Links struct {
	Logo   string `json:",omitempty"` // logo_uri: an image
	Policy string `json:",omitempty"` // policy_uri: what the app does with people's data
	Terms  string `json:",omitempty"` // tos_uri: what people must agree to
}

// RequestObjects says which request objects a client may send (OpenID Connect Core §6). A zero
// value: none.
type RequestObjects struct {
	Allowed   bool     `json:"-"`          // by the operator
	Algorithm string   `json:",omitempty"` // request_object_signing_alg. Default: any, and none.
	URIs      []string `json:",omitempty"` // request_uris: where the client may have one fetched
	KeysOnly  bool     `json:",omitempty"` // the client's keys sign request objects, and do not authenticate it
}

// FetchLogo returns what is at the logo_uri, up to a number of bytes.
func (c *Client) FetchLogo(ctx context.Context, most int) ([]byte, error) {
	return upstream.Fetch(ctx, c.Transport, c.Links.Logo, most)
}

// Values of [Client].Consent.
const (
	ConsentRequired = "required" // asks each person once for each set of scopes
	ConsentSkip     = "skip"     // never asks, not even if the request does
)

// Values of [Client].PKCE.
const (
	PKCERequired = "required" // refuses requests for a code without a code_challenge (RFC 7636)
	PKCEOptional = "optional" // leaves it to the client
)

// Public reports whether the client cannot authenticate (RFC 6749 §2.1).
func (c *Client) Public() bool {
	return c.Secret == "" && c.secretDigest == nil && (c.RequestObjects.KeysOnly || len(c.JWKS) == 0 && c.JWKSURI == "")
}

// Title returns the name to show to people.
func (c *Client) Title() string { return cmp.Or(c.Name, c.ID) }

// LaunchURL returns the app's launch URL for a launch of a FHIR API, or "" if it has none.
func (c *Client) LaunchURL(fhirBase, handle string) string {
	u, err := url.Parse(c.LaunchURI)
	if c.LaunchURI == "" || err != nil {
		return ""
	}
	q := u.Query()
	q.Set("iss", fhirBase)
	q.Set("launch", handle)
	u.RawQuery = q.Encode()
	return u.String()
}

// RequiresConsent reports whether people must consent before the client gets anything.
func (c *Client) RequiresConsent() bool { return c.Consent == ConsentRequired }

// IsInterceptable reports whether another app on a device could receive what is sent to a
// redirect URI (RFC 8252 §8.6).
func IsInterceptable(redirectURI string) bool {
	u, err := url.Parse(redirectURI)
	return err != nil || IsPrivateUse(redirectURI) || IsLoopback(u.Hostname())
}

// AsksToContinue reports whether people are asked to continue each time that the client wants
// a code, because another app could have it.
func (c *Client) AsksToContinue() bool {
	return c.Public() && slices.ContainsFunc(c.RedirectURIs, IsInterceptable)
}

// RequiresPKCE reports whether a request for a code needs a code_challenge.
func (c *Client) RequiresPKCE() bool {
	return c.PKCE == PKCERequired || c.PKCE == "" && c.Public()
}

// AllowsResponseType reports whether the client may use a response_type.
func (c *Client) AllowsResponseType(responseType string) bool {
	return slices.Contains(c.ResponseTypes, responseType)
}

// SigningAlgorithm returns the algorithm of the client's ID tokens.
func (c *Client) SigningAlgorithm() jose.SignatureAlgorithm {
	return cmp.Or(jose.SignatureAlgorithm(c.IDTokenAlgorithm), keyring.IDTokenAlgorithm)
}

// hasSecret compares digests, so that timing reveals neither the length of the secret nor
// the first difference.
func (c *Client) hasSecret(secret string) bool {
	return c.secretDigest != nil && sameDigest(c.secretDigest, secret)
}

// ResponseTypes are those of RFC 6749 §3.1.1 and OpenID Connect Core §3.2.2.1.
var ResponseTypes = []string{"code", "token", "id_token", "id_token token"}

// AllowsRedirectURI reports whether a redirect URI is registered. It must be equal, except
// for the port of a native app on loopback (RFC 8252 §7.3).
func (c *Client) AllowsRedirectURI(uri string) bool {
	if slices.Contains(c.RedirectURIs, uri) || c.Local && IsLocal(uri) {
		return true
	}
	asked, ok := withoutPort(uri)
	return ok && c.Native && slices.ContainsFunc(c.RedirectURIs, func(registered string) bool {
		listening, ok := withoutPort(registered)
		return ok && listening == asked
	})
}
