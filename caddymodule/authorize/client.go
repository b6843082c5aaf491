package authorize

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
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
	// identity providers, and [Local]. Default: all.
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

	// registered clients wrote their own description, and their secret is known
	// by its digest alone.
	registered bool
}

// Values of [Client].PKCE.
const (
	// PKCERequired refuses requests for a code without a code_challenge.
	PKCERequired = "required"

	// PKCEOptional leaves PKCE to the client.
	PKCEOptional = "optional"
)

// ReservedScopes may be asked for by every client.
var ReservedScopes = []string{"openid", "email", "phone", "profile"}

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

// needsPKCE reports whether a request for a code needs a code_challenge.
func (c *Client) needsPKCE() bool {
	return c.PKCE == PKCERequired || c.PKCE == "" && c.Public()
}

func (c *Client) mayRespond(responseType string) bool {
	return slices.Contains(c.ResponseTypes, responseType)
}

func (c *Client) mayGrant(grantType string) bool {
	if grantType == "authorization_code" || grantType == "refresh_token" {
		return c.mayRespond("code")
	}
	return slices.Contains(c.GrantTypes, grantType)
}

func (c *Client) idTokenAlgorithm() jose.SignatureAlgorithm {
	return cmp.Or(jose.SignatureAlgorithm(c.IDTokenAlgorithm), keyring.IDTokenAlgorithm)
}

// secretIs compares digests, so that neither the place of the first difference
// nor the length of the secret shows in the time it takes.
func (c *Client) secretIs(secret string) bool {
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
		c.secretDigest, c.guessable = digestOf(c.Secret), isGuessable(c.Secret)
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

// CheckScope says why a word is not one scope, if it is not (RFC 6749 §3.3), or
// looks like one of SMART's and is none: it could never be granted as meant.
func CheckScope(scope string) error {
	if parsed, err := smart.ParseScopes(scope); err != nil || len(parsed) != 1 {
		return fmt.Errorf("%q is not a scope (RFC 6749 §3.3)", scope)
	}
	level, _, resource := strings.Cut(scope, "/")
	if resource && slices.Contains([]string{"patient", "user", "system"}, level) {
		if _, ok := smart.ParseResourceScope(scope); !ok {
			return fmt.Errorf("%q is not a scope of SMART App Launch, such as %s/Observation.rs", scope, level)
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
	if alg := c.idTokenAlgorithm(); !slices.Contains(keyring.IDTokenAlgorithms, alg) {
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
	if slices.Contains(c.GrantTypes, "authorization_code") && !c.mayRespond("code") {
		return errors.New("grant_type authorization_code needs a redirect_uri and response_type code")
	}
	if c.IntrospectAll && c.Public() {
		return errors.New("introspect needs a secret, jwks or jwks_uri")
	}
	if c.mayGrant("client_credentials") && c.Public() {
		return errors.New("grant_type client_credentials needs a secret, jwks or jwks_uri")
	}
	return nil
}

// hostAndPort is a name or an IPv4 address, or an IPv6 address in brackets.
var hostAndPort = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// CheckRedirectURI says why a redirect URI must not be registered, if it must
// not. Besides what the interface asks (absolute, no fragment, https or
// http://localhost) it refuses what parsers read differently from each other:
// user information, backslashes, control characters, and hosts of anything but
// letters, digits, dots, hyphens and underscores, which could also end the
// address where it stands in a page's policy. The error begins with the URI: which
// option or parameter it is of, the caller says.
func CheckRedirectURI(uri string) error {
	refuse := func(reason string) error { return fmt.Errorf("%q %s", uri, reason) }
	if err := checkRedirectCharacters(uri); err != nil {
		return err
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URI: %w", uri, err)
	case u.Opaque != "" || u.Hostname() == "":
		return refuse("must be absolute, with a host")
	case !hostAndPort.MatchString(u.Host):
		return refuse("must name its host, and a port where there is a colon; there are no wildcards")
	case u.User != nil:
		return refuse("must not hold a user name or password")
	case u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost"):
		return refuse("must use https; http is for localhost alone")
	}
	return nil
}

// checkRedirectCharacters refuses a fragment, and what parsers read differently.
func checkRedirectCharacters(uri string) error {
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\\"<>^`{|}", r) }) {
		return fmt.Errorf("%q must be of the characters of a URI; write other hosts in punycode", uri)
	}
	if strings.Contains(uri, "#") {
		return fmt.Errorf("%q must not have a fragment", uri)
	}
	return nil
}
