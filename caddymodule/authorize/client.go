package authorize

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Client is an app that may ask for tokens (RFC 6749 §2).
type Client struct {
	// ID is the client_id.
	ID string

	// Name is shown to the person who signs in. Default: the ID.
	Name string

	// Secret authenticates a confidential client (RFC 6749 §2.3.1). A client
	// without one is public.
	Secret string

	// RedirectURIs are where answers may be sent; a request must name one of
	// them exactly (RFC 9700 §2.1).
	RedirectURIs []string

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

	// IntrospectAll lets the client introspect the tokens of all clients, as a
	// resource server must (RFC 7662 §4). Default: its own alone.
	IntrospectAll bool

	// RequirePushed refuses authorization requests that were not pushed by the
	// client itself (RFC 9126 §6).
	RequirePushed bool

	// Consent is whether people are asked before the client gets anything:
	// [ConsentRequired], [ConsentSkip], or empty to ask where the request wants
	// it (prompt=consent) and not otherwise.
	Consent string

	// RequirePKCE refuses authorization requests without a code_challenge
	// (RFC 7636).
	RequirePKCE bool

	// registered clients wrote their own description, and their secret is known
	// by its digest alone.
	registered   bool
	secretDigest []byte
}

// ReservedScopes may be asked for by every client.
var ReservedScopes = []string{"openid", "email", "phone", "profile"}

// Public says whether the client has no secret (RFC 6749 §2.1).
func (c *Client) Public() bool { return c.Secret == "" && c.secretDigest == nil }

// Title is what people are shown as the client's name.
func (c *Client) Title() string {
	if c.Name != "" {
		return c.Name
	}
	return c.ID
}

func (c *Client) mayRespond(responseType string) bool {
	return slices.Contains(c.ResponseTypes, responseType)
}

func (c *Client) mayGrant(grantType string) bool {
	if grantType == "authorization_code" {
		return c.mayRespond("code")
	}
	return slices.Contains(c.GrantTypes, grantType)
}

// secretIs compares digests, so that neither the place of the first difference
// nor the length of the secret shows in the time it takes.
func (c *Client) secretIs(secret string) bool {
	if c.secretDigest != nil {
		return sameDigest(c.secretDigest, secret)
	}
	want, got := sha256.Sum256([]byte(c.Secret)), sha256.Sum256([]byte(secret))
	return !c.Public() && subtle.ConstantTimeCompare(want[:], got[:]) == 1
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
	for _, check := range []func() error{c.checkRedirectURIs, c.checkScopes, c.checkFlows} {
		if err := check(); err != nil {
			return fmt.Errorf("client %q: %w", c.ID, err)
		}
	}
	return nil
}

func (c *Client) checkRedirectURIs() error {
	for _, uri := range slices.Concat(c.RedirectURIs, c.PostLogoutRedirectURIs) {
		if err := CheckRedirectURI(uri); err != nil {
			return err
		}
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
	for _, t := range c.GrantTypes {
		if t != "client_credentials" && t != "authorization_code" {
			return fmt.Errorf("grant_type %q is not known: use authorization_code or client_credentials", t)
		}
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
		return errors.New("introspect needs a secret")
	}
	if c.mayGrant("client_credentials") && c.Public() {
		return errors.New("grant_type client_credentials needs a secret")
	}
	return nil
}

// CheckRedirectURI says why a redirect URI must not be registered, if it must
// not. Besides what the interface asks (absolute, no fragment, https or
// http://localhost) it refuses what parsers read differently from each other:
// user information, backslashes, control characters, hosts outside ASCII.
func CheckRedirectURI(uri string) error {
	refuse := func(reason string) error { return fmt.Errorf("redirect_uri %q %s", uri, reason) }
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\\"<>^`{|}", r) }) {
		return refuse("must be of the characters of a URI; write other hosts in punycode")
	}
	if strings.Contains(uri, "#") {
		return refuse("must not have a fragment")
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return fmt.Errorf("redirect_uri is not a URI: %w", err)
	case u.Opaque != "" || u.Hostname() == "":
		return refuse("must be absolute, with a host")
	case strings.Contains(u.Host, "*"):
		return refuse("must name its host; there are no wildcards")
	case u.User != nil:
		return refuse("must not hold a user name or password")
	case u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost"):
		return refuse("must use https; http is for localhost alone")
	}
	return nil
}
