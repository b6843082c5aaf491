package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// Client is an app that may ask for tokens (RFC 6749 §2).
type Client struct {
	// ID is the client_id.
	ID string

	// Name is shown to the person who signs in. Default: the ID.
	Name string

	// Secret authenticates a confidential client (RFC 6749 §2.3.1). A client
	// with neither a secret nor keys is public.
	Secret string

	// JWKS is a JWK Set (RFC 7517 §5) with the public keys by which the client
	// proves who it is (private_key_jwt, RFC 7523).
	JWKS []byte

	// JWKSURI is where such a JWK Set is: https, or http on loopback.
	JWKSURI string

	// Transport makes the requests to JWKSURI and BackchannelLogoutURI. Default: a
	// clone of http.DefaultTransport.
	Transport http.RoundTripper

	// AssertionAlgorithm is token_endpoint_auth_signing_alg (OpenID Connect
	// Dynamic Client Registration §2): the one algorithm by which the client
	// proves who it is. Default: any that discovery lists.
	AssertionAlgorithm string

	// RedirectURIs are where answers may be sent; a request must name one of
	// them exactly (RFC 9700 §2.1).
	RedirectURIs []string

	// Native is whether the client is an app on a device (RFC 8252). Its redirect
	// URIs may be those of loopback, by IP address, at any port, and have a
	// private-use scheme. Default: false.
	Native bool

	// Scopes may be granted beside [ReservedScopes], which are open to all.
	Scopes []string

	// ResponseTypes are those of [ResponseTypes] that the client may use.
	// Default: "code" where there are redirect URIs.
	ResponseTypes []string

	// GrantTypes are the grants beyond what ResponseTypes implies:
	// "client_credentials".
	GrantTypes []string

	// IdentityProviders are the ways to sign in to this client: keys of
	// identity providers, and "local". Default: all.
	IdentityProviders []string

	// PostLogoutRedirectURIs are where a browser may be sent after signing out;
	// as with RedirectURIs, exactly (OpenID Connect RP-Initiated Logout §3.1).
	PostLogoutRedirectURIs []string

	// BackchannelLogoutURI is where the client is told that a session ended in
	// which it got an ID token; the logout token names it by sub and sid.
	// Default: it is not told (OpenID Connect Back-Channel Logout §2.2).
	BackchannelLogoutURI string

	// IntrospectAll lets the client introspect the tokens of all clients, as a
	// resource server must (RFC 7662 §4). Default: its own alone.
	IntrospectAll bool

	// IDTokenAlgorithm is id_token_signed_response_alg (OpenID Connect Dynamic
	// Client Registration §2): "RS256" or "ES256", which takes a twentieth of
	// the time to sign. Default: "RS256".
	IDTokenAlgorithm string

	// ScopeClaimsInIDToken puts the claims that the scope asks for (OpenID Connect
	// Core §5.4) into the ID tokens of the code flow too, for apps that do not ask
	// userinfo. Default: userinfo alone tells them.
	ScopeClaimsInIDToken bool

	// RequirePushed refuses authorization requests that were not pushed by the
	// client itself (RFC 9126 §6).
	RequirePushed bool

	// Consent is whether people are asked before the client gets anything:
	// [ConsentRequired], [ConsentSkip], or empty to ask where the request wants
	// it (prompt=consent) and not otherwise.
	Consent string

	// PKCE is whether authorization requests for a code need a code_challenge
	// (RFC 7636): [PKCERequired] or [PKCEOptional]. Default: public clients need
	// one, as nothing else binds a code to whoever asked for it (RFC 9700 §2.1.1).
	PKCE string

	secretDigest []byte // nil: it has no secret
	guessable    bool   // the secret is
	keys         *upstream.KeySet
	granted      *grantedScopes // nil: nothing is remembered

	// Registered clients wrote their own description, and their secret is known
	// by its digest alone.
	Registered bool
}

// Values of [Client].Consent.
const (
	// ConsentRequired asks each person once for each set of scopes.
	ConsentRequired = "required"

	// ConsentSkip never asks, not even where the request wants it.
	ConsentSkip = "skip"
)

// Values of [Client].PKCE.
const (
	// PKCERequired refuses requests for a code without a code_challenge.
	PKCERequired = "required"

	// PKCEOptional leaves PKCE to the client.
	PKCEOptional = "optional"
)

// Public says whether the client cannot prove who it is (RFC 6749 §2.1).
func (c *Client) Public() bool {
	return c.Secret == "" && c.secretDigest == nil && len(c.JWKS) == 0 && c.JWKSURI == ""
}

// Title is what people are shown as the client's name.
func (c *Client) Title() string {
	if c.Name != "" {
		return c.Name
	}
	return c.ID
}

// RequiresConsent reports whether people are asked before the client gets anything.
func (c *Client) RequiresConsent() bool { return c.Consent == ConsentRequired }

// RequiresPKCE reports whether a request for a code needs a code_challenge.
func (c *Client) RequiresPKCE() bool {
	return c.PKCE == PKCERequired || c.PKCE == "" && c.Public()
}

// AllowsResponseType says whether a response_type is one of the client's.
func (c *Client) AllowsResponseType(responseType string) bool {
	return slices.Contains(c.ResponseTypes, responseType)
}

// AllowsGrantType says whether the client may use a grant_type.
func (c *Client) AllowsGrantType(grantType string) bool {
	if grantType == "authorization_code" || grantType == "refresh_token" {
		return c.AllowsResponseType("code")
	}
	return slices.Contains(c.GrantTypes, grantType)
}

// SigningAlgorithm is the algorithm of the client's ID tokens.
func (c *Client) SigningAlgorithm() jose.SignatureAlgorithm {
	return cmp.Or(jose.SignatureAlgorithm(c.IDTokenAlgorithm), keyring.IDTokenAlgorithm)
}

// hasSecret compares digests, so that neither the place of the first difference
// nor the length of the secret shows in the time it takes.
func (c *Client) hasSecret(secret string) bool {
	return c.secretDigest != nil && sameDigest(c.secretDigest, secret)
}

// Complete fills in defaults, and says why a client could never work or never
// be safe, if it could not.
func (c *Client) Complete() error {
	if c.ID == "" {
		return errors.New("a client needs an id")
	}
	if len(c.ResponseTypes) == 0 && len(c.RedirectURIs) > 0 {
		c.ResponseTypes = []string{"code"}
	}
	if c.Secret != "" {
		c.secretDigest, c.guessable = digestOf(c.Secret), IsGuessable(c.Secret)
	}
	for _, check := range []func() error{c.checkKeys, c.checkRedirectURIs, c.checkScopes, c.checkFlows} {
		if err := check(); err != nil {
			return fmt.Errorf("client %q: %w", c.ID, err)
		}
	}
	return nil
}

func (c *Client) checkRedirectURIs() error {
	check := CheckRedirectURI
	if c.Native {
		check = checkNativeRedirectURI
	}
	for _, uri := range c.RedirectURIs {
		if err := check(uri); err != nil {
			return fmt.Errorf("redirect_uri %w", err)
		}
	}
	for _, uri := range c.PostLogoutRedirectURIs {
		if err := check(uri); err != nil {
			return fmt.Errorf("post_logout_redirect_uri %w", err)
		}
	}
	if c.BackchannelLogoutURI != "" {
		return CheckBackchannelLogoutURI(c.BackchannelLogoutURI)
	}
	return nil
}

func (c *Client) checkScopes() error {
	for _, scope := range c.Scopes {
		if err := CheckScope(scope); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) checkFlows() error {
	for _, t := range c.ResponseTypes {
		if !slices.Contains(ResponseTypes, t) {
			return fmt.Errorf("response_type %q is not one of %q", t, ResponseTypes)
		}
	}
	if alg := c.SigningAlgorithm(); !slices.Contains(keyring.IDTokenAlgorithms, alg) {
		return fmt.Errorf("id_token_alg %q is not known: use RS256 or ES256", alg)
	}
	for _, t := range c.GrantTypes {
		if t != "client_credentials" && t != "authorization_code" {
			return fmt.Errorf("grant_type %q is not known: use authorization_code or client_credentials", t)
		}
	}
	if !slices.Contains([]string{"", PKCERequired, PKCEOptional}, c.PKCE) {
		return fmt.Errorf("pkce %q is not known: use %s or %s", c.PKCE, PKCERequired, PKCEOptional)
	}
	if !slices.Contains([]string{"", ConsentRequired, ConsentSkip}, c.Consent) {
		return fmt.Errorf("consent %q is not known: use %s or %s", c.Consent, ConsentRequired, ConsentSkip)
	}
	if len(c.ResponseTypes) > 0 && len(c.RedirectURIs) == 0 {
		return errors.New("a response_type needs a redirect_uri")
	}
	if slices.Contains(c.GrantTypes, "authorization_code") && !c.AllowsResponseType("code") {
		return errors.New("grant_type authorization_code needs a redirect_uri and response_type code")
	}
	if c.IntrospectAll && c.Public() {
		return errors.New("introspect needs a secret, jwks or jwks_uri")
	}
	if c.AllowsGrantType("client_credentials") && c.Public() {
		return errors.New("grant_type client_credentials needs a secret, jwks or jwks_uri")
	}
	return nil
}

// ResponseTypes are the values of response_type that a client can be allowed:
// those of RFC 6749 §3.1.1, and of OpenID Connect Core §3.2.2.1.
var ResponseTypes = []string{"code", "token", "id_token", "id_token token"}
